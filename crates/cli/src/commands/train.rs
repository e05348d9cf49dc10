//! `cairn train`: trains a model as a file says, from wherever its run is.

mod layout;
pub(crate) mod metrics;
mod progress;
mod ranks;

use crate::args::Train;
use crate::error::{Error, Exit};
use crate::printer::Printer;
use crate::table::Table;
use crate::units::size;
use cairn::device::system::Memory;
use cairn::train::config::{self, Config, Moment};
use cairn::train::{Ending, Event};
use layout::Layout;
use metrics::{Metrics, Start};
use progress::Progress;
use ranks::Ranks;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// How a run ended.
#[derive(Debug, Default, Serialize)]
struct Summary {
    run: String,
    ending: &'static str,
    mesh: String,
    /// The step that this launch went on from.
    resumed_from: Option<u64>,
    /// The last step that was done.
    step: u64,
    loss: Option<f64>,
    evaluation_loss: Option<f64>,
    tokens: u64,
    seconds: f64,
    saves: u64,
    failed_saves: u64,
    /// How long training waited for checkpoints in all.
    stall_seconds: f64,
    peak_memory_bytes: Option<u64>,
}

pub(crate) fn run(args: &Train, printer: &Printer) -> Result<Exit, Error> {
    let mut config = config::read(&args.config, &args.settings())?;
    config.take_over = args.take_over;
    let layout = Layout::of(&config)?;
    if args.dry_run {
        config::check_inputs(&config)?;
        layout.warn(printer);
        printer.report(&layout, || layout.text(printer.paint()))?;
        return Ok(Exit::Done);
    }
    let ranks = Ranks::find()?;
    if !ranks.has_first() {
        ranks.launch(&config, &interrupts()?, &mut |_| ())?;
        return Ok(Exit::Done);
    }
    layout.warn(printer);
    if ranks.are_threads() {
        layout.refuse()?;
    }
    let stop = interrupts()?;
    let mut watcher = Watcher::new(&config, printer);
    let begun = Instant::now();
    let ending = ranks.launch(&config, &stop, &mut |moment| watcher.hear(moment))?;
    let mut summary = watcher.summary;
    summary.ending = match ending {
        Ending::Finished => "finished",
        Ending::Stopped => "stopped",
    };
    summary.seconds = begun.elapsed().as_secs_f64();
    summary.peak_memory_bytes = Memory::now().map(|memory| memory.peak_bytes);
    printer.report(&summary, || summary.text(printer))?;
    Ok(Exit::Done)
}

/// The flag that the first interrupt sets; the second ends the process at once.
pub(super) fn interrupts() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let set = flag::register_conditional_shutdown(signal, 128 + signal, stop.clone());
        set.and_then(|_| flag::register(signal, stop.clone()))
            .map_err(Error::Signals)?;
    }
    Ok(stop)
}

/// Writes down and shows what is heard of a run.
struct Watcher<'a> {
    config: &'a Config,
    printer: &'a Printer,
    progress: Progress,
    metrics: Option<Metrics>,
    summary: Summary,
}

impl<'a> Watcher<'a> {
    fn new(config: &'a Config, printer: &'a Printer) -> Self {
        Self {
            config,
            printer,
            progress: Progress::new(config),
            metrics: None,
            summary: Summary {
                run: config.folder.clone(),
                mesh: config.settings.parallel.mesh.to_string(),
                ..Summary::default()
            },
        }
    }

    fn hear(&mut self, moment: Moment<'_>) {
        let summary = &mut self.summary;
        let written = match moment {
            Moment::Ready(resumed) => {
                for (step, reason) in resumed.iter().flat_map(|resumed| &resumed.skipped) {
                    self.printer
                        .warn(&format!("passing over step {step}: {reason}"));
                }
                for change in resumed.iter().flat_map(|resumed| &resumed.changes) {
                    let step = resumed.map_or(0, |resumed| resumed.step);
                    self.printer
                        .note(&format!("changed since step {step}: {change}"));
                }
                summary.resumed_from = resumed.map(|resumed| resumed.step);
                self.begin(resumed.is_some_and(|resumed| !resumed.skipped.is_empty()))
            }
            Moment::Event(Event::Step(report)) => {
                summary.step = report.step;
                summary.loss = Some(report.loss);
                summary.tokens += report.tokens;
                summary.stall_seconds += report.stall.as_secs_f64();
                self.progress.step(report, self.printer);
                self.metrics.as_mut().map_or(Ok(()), |to| to.step(report))
            }
            Moment::Event(Event::SaveFailed { step, reason }) => {
                summary.failed_saves += 1;
                self.printer
                    .warn(&format!("step {step} was not saved: {reason}"));
                Ok(())
            }
            Moment::Event(Event::Saving { .. }) => {
                summary.saves += 1;
                Ok(())
            }
            Moment::Evaluated(step, found) => {
                summary.evaluation_loss = Some(found.loss);
                let loss = found.loss;
                self.printer.note(&format!(
                    "step {step}: loss {loss:.4} on the data set aside"
                ));
                self.metrics
                    .as_mut()
                    .map_or(Ok(()), |to| to.evaluation(step, found))
            }
        };
        if let Err(error) = written {
            // Training is dearer than what is written about it.
            self.metrics = None;
            self.printer
                .warn(&format!("metrics are no longer written: {error}"));
        }
    }

    /// Goes on with the metrics from where the run goes on.
    fn begin(&mut self, went_back: bool) -> Result<(), Error> {
        let log = &self.config.log;
        let from = self.summary.resumed_from.unwrap_or(0);
        self.summary.step = from;
        self.metrics = Some(Metrics::begin(
            &log.folder,
            Start { from, went_back },
            log.tensorboard,
        )?);
        let mesh = &self.summary.mesh;
        self.printer.note(&match self.summary.resumed_from {
            Some(step) => format!("going on after step {step} on {mesh}"),
            None => format!("starting a new run on {mesh}"),
        });
        Ok(())
    }
}

impl Summary {
    fn text(&self, printer: &Printer) -> String {
        let mut facts = Table::facts();
        facts.fact(
            self.ending,
            format!("after step {} of `{}`", self.step, self.run),
        );
        if let Some(loss) = self.loss {
            facts.fact("loss", format!("{loss:.4}"));
        }
        if let Some(loss) = self.evaluation_loss {
            facts.fact("set aside", format!("{loss:.4}"));
        }
        let rate = self.tokens as f64 / self.seconds;
        facts.fact(
            "time",
            format!(
                "{:.1} s, {} tokens, {rate:.0} tokens/s",
                self.seconds, self.tokens
            ),
        );
        let stall = self.stall_seconds * 1e3;
        facts.fact(
            "checkpoints",
            format!(
                "{} on the way, training waited {stall:.0} ms for them",
                self.saves
            ),
        );
        if let Some(bytes) = self.peak_memory_bytes {
            facts.fact("memory", format!("{} at most", size(bytes)));
        }
        facts.render(printer.paint())
    }
}
