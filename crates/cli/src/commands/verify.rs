//! `cairn verify`: is what is stored what was saved?

use crate::args::Verify;
use crate::error::{Error, Exit, causes};
use crate::keys;
use crate::open::place;
use crate::printer::Printer;
use crate::table::{Paint, Style, Table, cell};
use crate::units::{plural, size};
use cairn::checkpoint::Place;
use cairn::checkpoint::signing::PublicKey;
use cairn::checkpoint::{
    COMMIT, Checkpoint, Checkpointer, Error as CheckpointError, Manifest, ModelSource, Options,
    Sample, StepState, Unfinished, World, all_steps, each_step, finish, step_folder, survey,
    survey_signed, unfinished,
};
use cairn::store::Store;
use cairn::store::redact;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Debug, Serialize)]
struct Report {
    path: String,
    steps: Vec<Step>,
    checked_bytes: u64,
    /// Where a share of the bytes was read.
    seed: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Step {
    /// Models in other formats have none.
    step: Option<u64>,
    state: &'static str,
    finished: bool,
    files: usize,
    len_bytes: u64,
    checked_bytes: u64,
    problems: Vec<String>,
    /// Whether its commit says which launch each part is from; those of several writers are of one moment if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    one_moment: Option<bool>,
}

impl Step {
    fn new(step: Option<u64>, state: &'static str) -> Self {
        Self {
            step,
            state,
            finished: false,
            files: 0,
            len_bytes: 0,
            checked_bytes: 0,
            problems: Vec::new(),
            one_moment: None,
        }
    }
}

pub(crate) fn run(args: &Verify, printer: &Printer) -> Result<Exit, Error> {
    let start = Instant::now();
    let sample = sample(args);
    let steps = match place(&args.path)? {
        Place::Folder(model) | Place::File(model) => {
            if key(args)?.is_some() {
                let path = args.path.clone();
                return Err(Error::Unsigned { path });
            }
            if args.read_data.is_some() {
                printer.warn("this format stores no checksums: only its structure was checked");
            }
            vec![check_model(&model)]
        }
        Place::Run(run) => {
            let steps = check_run(args, sample, &run, &all_steps(run.as_ref())?, printer)?;
            if args.finish {
                upload(&run)?;
            }
            steps
        }
        Place::Step(run, step) => check_run(args, sample, &run, &[step], printer)?,
    };
    let report = Report {
        path: redact(&args.path),
        checked_bytes: steps.iter().map(|step| step.checked_bytes).sum(),
        steps,
        seed: (sample.share > 0.0 && sample.share < 1.0).then_some(sample.seed),
    };
    printer.report(&report, || report.text(printer.paint()))?;
    if report.checked_bytes > 0 {
        let (bytes, seconds) = (size(report.checked_bytes), start.elapsed().as_secs_f64());
        let which = report.seed.map_or(String::new(), |seed| {
            format!("; `--seed {seed}` reads the same bytes")
        });
        printer.note(&format!("read {bytes} in {seconds:.1} s{which}"));
    }
    let unproven = { report.steps.iter() }.filter(|step| step.one_moment == Some(false));
    match unproven.count() {
        0 => {}
        count => printer.note(&format!(
            "{} by a version that did not record which launch each part is from; `docs/errata.md` tells when parts of two moments could meet",
            match count {
                1 => "1 step was saved".to_string(),
                _ => format!("{count} steps were saved"),
            }
        )),
    }
    if report.exit() == Exit::Incomplete {
        printer.note(match args.finish {
            true => "`cairn prune --incomplete` deletes what crashed saves left",
            false => "`--finish` commits saves that lack only their commit, `cairn prune --incomplete` deletes the rest",
        });
    }
    Ok(report.exit())
}

/// Brings to the durable tier what only the fast one has, if the run has tiers.
fn upload(run: &Arc<dyn Store>) -> Result<(), Error> {
    let options = Options {
        keep_fast: None,
        ..Options::default()
    };
    let run = Checkpointer::with_options(run.clone(), World::single(), options);
    run.resume_uploads()?;
    Ok(run.wait()?)
}

/// Opening a model has checked its headers against the lengths of its files already.
fn check_model(model: &ModelSource) -> Step {
    let files = &model.model().files;
    Step {
        files: files.len(),
        len_bytes: files.iter().map(|file| file.len_bytes).sum(),
        ..Step::new(None, "complete")
    }
}

/// The key that must have signed what is checked.
fn key(args: &Verify) -> Result<Option<PublicKey>, Error> {
    match &args.key {
        Some(key) => keys::public(key).map(Some),
        None => keys::required(),
    }
}

/// The bytes to read; without a seed others each time, so that all are read in the end.
fn sample(args: &Verify) -> Sample {
    let unless_told = if args.key.is_some() { 1.0 } else { 0.0 };
    let sample = Sample::from(args.read_data.unwrap_or(unless_told));
    Sample {
        seed: args.seed.unwrap_or(sample.seed),
        ..sample
    }
}

fn check_run(
    args: &Verify,
    sample: Sample,
    run: &Arc<dyn Store>,
    steps: &[u64],
    printer: &Printer,
) -> Result<Vec<Step>, Error> {
    let done = Arc::new(AtomicU64::new(0));
    let key = key(args)?;
    let bar = (sample.share > 0.0).then(|| {
        let total = bytes_of(run, steps) as f64 * sample.share;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a length for a progress bar"
        )]
        printer.progress("verify", total as u64, done.clone())
    });
    let look = |step| {
        let finished = args.finish && finish_if_complete(run.as_ref(), step)?;
        let progress = |bytes| {
            done.fetch_add(bytes, Ordering::Relaxed);
        };
        let state = match &key {
            None => survey(run, step, sample, &progress)?,
            Some(key) => survey_signed(run, step, key, sample, &progress)?,
        };
        let found = describe(step, state)?;
        Ok::<_, Error>(Step { finished, ..found })
    };
    // Data are read by several threads anyway, within the memory of one step.
    let checked = match sample.share > 0.0 {
        true => steps.iter().copied().map(look).collect(),
        false => each_step(run.as_ref(), steps, look),
    };
    drop(bar);
    checked
}

/// Commits a step that lacks only its commit; whether there was something to do.
fn finish_if_complete(run: &dyn Store, step: u64) -> Result<bool, Error> {
    let key = format!("{}/{COMMIT}", step_folder(step));
    let committed = run.head(&key)?.is_some();
    if committed || !unfinished(run, step)?.iter().any(Unfinished::is_complete) {
        return Ok(false);
    }
    match finish(run, step) {
        // Two attempts are complete: which one is right is not for a machine to say.
        Err(CheckpointError::Incomplete { .. } | CheckpointError::Deleted { .. }) => Ok(false),
        result => Ok(result.map(|()| true)?),
    }
}

fn bytes_of(run: &Arc<dyn Store>, steps: &[u64]) -> u64 {
    let opened = steps
        .iter()
        .filter_map(|step| Checkpoint::open(run.clone(), *step).ok());
    opened
        .map(|checkpoint| checkpoint.manifest().len_bytes)
        .sum()
}

fn describe(step: u64, state: StepState) -> Result<Step, Error> {
    let mut one_moment = None;
    let (state, report) = match state {
        StepState::Whole(checkpoint, report) => {
            one_moment = Some(is_of_one_moment(checkpoint.manifest()));
            ("complete", report)
        }
        StepState::Damaged(_, report) => ("damaged", report),
        StepState::Incomplete(attempts) => {
            return Ok(Step {
                problems: attempts.iter().map(Unfinished::reason).collect(),
                ..Step::new(Some(step), "incomplete")
            });
        }
        StepState::Untrusted(error) => {
            return Ok(Step {
                problems: vec![error.to_string()],
                ..Step::new(Some(step), "untrusted")
            });
        }
        StepState::Deleted => return Ok(Step::new(Some(step), "deleted")),
        StepState::TooNew(error) => return Err(error.into()),
    };
    let problem =
        |error: &CheckpointError| [vec![error.to_string()], causes(error)].concat().join(": ");
    Ok(Step {
        files: report.files,
        len_bytes: report.len_bytes,
        checked_bytes: report.checked_bytes,
        problems: report.damage.iter().map(problem).collect(),
        one_moment,
        ..Step::new(Some(step), state)
    })
}

/// Whether it is sure that all parts of a step were saved by one call of `save`.
fn is_of_one_moment(manifest: &Manifest) -> bool {
    manifest.writers() == 1 || manifest.launch.is_some()
}

impl Report {
    fn exit(&self) -> Exit {
        let any = |state| self.steps.iter().any(|step| step.state == state);
        match (any("damaged"), any("untrusted"), any("incomplete")) {
            (true, ..) => Exit::Damaged,
            (_, true, _) => Exit::Differs,
            (_, _, true) => Exit::Incomplete,
            _ => Exit::Done,
        }
    }

    fn text(&self, paint: Paint) -> String {
        let mut table = Table::new(&["", "", ""]);
        for step in &self.steps {
            let style = match step.state {
                "complete" => Style::Green,
                "damaged" | "untrusted" => Style::Red,
                _ => Style::Yellow,
            };
            let name = step
                .step
                .map_or("model".into(), |step| format!("step {step}"));
            table.row(vec![
                name.into(),
                cell(style, step.state),
                step.summary().into(),
            ]);
            for problem in &step.problems {
                table.row(vec!["".into(), "".into(), problem.as_str().into()]);
            }
        }
        table.render(paint)
    }
}

impl Step {
    fn summary(&self) -> String {
        let mut parts = Vec::new();
        if self.finished {
            parts.push("now committed".to_string());
        }
        if self.files > 0 {
            parts.push(format!(
                "{}, {}",
                plural(self.files, "file"),
                size(self.len_bytes)
            ));
        }
        match (self.state, self.checked_bytes) {
            ("untrusted", _) => parts.push("refused".into()),
            ("incomplete", _) => parts.push("never committed".into()),
            ("deleted", _) => parts.push("its files go with the next `cairn prune`".into()),
            (_, 0) => parts.push("structure checked".into()),
            (_, checked) => parts.push(format!("{} read and compared", size(checked))),
        }
        if self.one_moment == Some(false) {
            parts.push("not proven to be of one moment".into());
        }
        parts.join(", ")
    }
}
