//! `cairn report`: where the time of a run's saves went, and what the values of a step or model are like.

mod bars;
mod html;
mod perfetto;
mod summary;
mod tensorboard;
mod text;
mod values;

use super::file;
use crate::args::Report;
use crate::error::{Error, Exit, causes};
use crate::open::{open, open_run, place};
use crate::printer::Printer;
use crate::units::{plural, ranks};
use cairn::checkpoint::timeline::{Lane, StepTimelines};
use cairn::checkpoint::{Checkpoint, Error as CheckpointError, Place, all_steps, step_folder};
use cairn::store::Store;
use std::collections::BTreeSet;
use std::sync::Arc;
use summary::{Rank, Step, Summary};
use values::Values;

/// The most spans of a step that are kept once its numbers are known: a picture shows no more.
const MAX_SPANS_OF_A_STEP: usize = 60_000;

/// A committed step: its numbers, and the timelines they come from.
struct Saved {
    numbers: Step,
    ranks: Vec<Rank>,
    timelines: StepTimelines,
}

pub(crate) fn run(args: &Report, printer: &Printer) -> Result<Exit, Error> {
    if let Ok(Place::Folder(_) | Place::File(_)) = place(&args.path) {
        return only_values(args, &args.path, printer);
    }
    let (run, named) = open_run(&args.path)?;
    let wanted = args.step.or(named);
    let last = if named.is_some() { 0 } else { args.last };
    let mut saved = gather(&run, last, wanted)?;
    let Some(chosen) = choose(&saved, wanted) else {
        let newest = saved.last().map(|saved| saved.numbers.step).or(wanted);
        return match newest.filter(|_| args.values) {
            Some(step) => only_values(args, &path_of(&run, step), printer),
            None => Err(Error::NoTimelines {
                path: args.path.clone(),
                step: wanted,
            }),
        };
    };
    warn(&saved[chosen], printer);
    let values = match args.values {
        true => {
            let path = path_of(&run, saved[chosen].numbers.step);
            Some(Values::read(&path, open(&path, printer)?, printer)?)
        }
        false => None,
    };
    if let Some(path) = &args.perfetto {
        let trace = perfetto::trace(&saved[chosen].timelines);
        file::write(path, trace.to_string().as_bytes(), printer)?;
    }
    if let Some(folder) = &args.tensorboard {
        let (name, events) = tensorboard::events(&saved);
        file::write(&format!("{folder}/{name}"), &events, printer)?;
    }
    saved.iter_mut().for_each(Saved::coarsen);
    if let Some(path) = &args.html {
        let page = html::page(&run.url(), &saved, chosen, values.as_ref());
        file::write(path, page.as_bytes(), printer)?;
    }
    let summary = Summary::new(run.url(), &saved, chosen, values.as_ref());
    let slowest = saved[chosen].timelines.slowest();
    printer.report(&summary, || text::of(&summary, slowest, printer.paint()))?;
    Ok(Exit::Done)
}

/// Shows the values of what no timelines tell about.
fn only_values(args: &Report, path: &str, printer: &Printer) -> Result<Exit, Error> {
    let values = Values::read(path, open(path, printer)?, printer)?;
    if let Some(target) = &args.html {
        let page = html::page(path, &[], 0, Some(&values));
        file::write(target, page.as_bytes(), printer)?;
    }
    printer.report(&values, || values.text(printer.paint()))?;
    Ok(Exit::Done)
}

fn path_of(run: &Arc<dyn Store>, step: u64) -> String {
    format!("{}/{}", run.url().trim_end_matches('/'), step_folder(step))
}

/// The newest `last` steps that are committed, and the one that is wanted; ascending.
fn gather(run: &Arc<dyn Store>, last: usize, wanted: Option<u64>) -> Result<Vec<Saved>, Error> {
    let steps = all_steps(run.as_ref())?;
    if let Some(step) = wanted.filter(|step| !steps.contains(step)) {
        let (url, available) = (run.url(), steps);
        return Err(CheckpointError::NoSuchStep {
            step,
            url,
            available,
        }
        .into());
    }
    let newest = steps
        .iter()
        .rev()
        .take(last.max(usize::from(wanted.is_none())));
    let picked: BTreeSet<u64> = newest.copied().chain(wanted).collect();
    let mut saved = Vec::new();
    for step in picked {
        match Checkpoint::open(run.clone(), step) {
            Ok(checkpoint) => saved.push(Saved::read(&checkpoint)?),
            // What is wrong with a step is told by `cairn ls`, unless it is this one that is asked for.
            Err(error) if wanted == Some(step) => return Err(error.into()),
            Err(
                CheckpointError::Incomplete { .. }
                | CheckpointError::Version { .. }
                | CheckpointError::Needs { .. },
            ) => {}
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(saved)
}

/// The step to look at closely: the one that is wanted, or the newest that left timelines.
fn choose(saved: &[Saved], wanted: Option<u64>) -> Option<usize> {
    saved.iter().rposition(|step| {
        let asked = wanted.is_none_or(|wanted| wanted == step.numbers.step);
        asked && !step.timelines.ranks.is_empty()
    })
}

impl Saved {
    fn read(checkpoint: &Checkpoint) -> Result<Self, Error> {
        let timelines = checkpoint.timelines()?;
        Ok(Self {
            numbers: Step::new(checkpoint, &timelines),
            ranks: timelines.ranks.iter().map(Rank::new).collect(),
            timelines,
        })
    }

    fn coarsen(&mut self) {
        let lanes = self.timelines.ranks.len() * Lane::ALL.len();
        let most = MAX_SPANS_OF_A_STEP / lanes.max(1);
        for timeline in &mut self.timelines.ranks {
            *timeline = std::mem::take(timeline).coarse(most);
        }
    }
}

fn warn(saved: &Saved, printer: &Printer) {
    let (step, timelines) = (saved.numbers.step, &saved.timelines);
    if !timelines.missing.is_empty() {
        let (of, who) = (plural(timelines.missing.len(), "rank"), &timelines.missing);
        let who = ranks(who, 40);
        printer.warn(&format!("{of} of step {step} left no timeline: {who}"));
    }
    for error in &timelines.unreadable {
        let text = [vec![error.to_string()], causes(error)].concat();
        printer.warn(&text.join(": "));
    }
}
