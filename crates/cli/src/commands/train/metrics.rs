//! What a run writes down about itself: every step exactly once, however often the run is killed and resumed.
//!
//! `metrics.jsonl` has a line for each step, `evaluation.jsonl` one for each evaluation. A run that goes on from step 100 first drops the lines of
//! later steps, and half a line at the end, then adds its own. Where those steps had been saved and are damaged now, their lines go to
//! `metrics.abandoned.jsonl`. TensorBoard is told to do the same.

use crate::error::Error;
use crate::events;
use cairn::store::{self, Error as StoreError, Journal, Local, PutMode, Store};
use cairn::train::{Evaluation, StepReport};
use serde::Serialize;
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The files of metrics.
pub(crate) const METRICS: &str = "metrics.jsonl";
const EVALUATION: &str = "evaluation.jsonl";

/// Where lines go that were dropped because the run went back past steps that had been saved: they tell of steps that were made.
const ABANDONED: &str = "abandoned.jsonl";

/// Where the lines of a run begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// The step that they go on after.
    pub(crate) from: u64,
    /// Whether steps after it had been saved.
    pub(crate) went_back: bool,
}

/// The growing files of a run.
#[derive(Debug)]
pub(crate) struct Metrics {
    steps: Journal,
    evaluations: Journal,
    events: Option<Journal>,
}

/// A line of `metrics.jsonl`.
#[derive(Debug, Serialize)]
struct StepLine {
    step: u64,
    loss: f64,
    gradient_norm: f64,
    learning_rate: f64,
    tokens: u64,
    seconds: f64,
    stall_seconds: f64,
    skipped: bool,
    unix_seconds: f64,
}

/// A line of `evaluation.jsonl`.
#[derive(Debug, Serialize)]
struct EvaluationLine {
    step: u64,
    loss: f64,
    tokens: u64,
    unix_seconds: f64,
}

impl Metrics {
    /// Goes on from `start`, in `folder`.
    pub(crate) fn begin(folder: &str, start: Start, tensorboard: bool) -> Result<Self, Error> {
        let folder = folder.strip_prefix("file://").unwrap_or(folder);
        if folder.contains("://") {
            let reason = "metrics grow line by line, and objects of a bucket do not: set `log.folder` to a folder";
            return Err(Error::Store(StoreError::InvalidUrl {
                url: folder.into(),
                reason: reason.into(),
            }));
        }
        let store = Local::new(folder);
        let events = match tensorboard {
            true => Some(begin_events(&store, start.from)?),
            false => None,
        };
        Ok(Self {
            steps: begin(&store, METRICS, start)?,
            evaluations: begin(&store, EVALUATION, start)?,
            events,
        })
    }

    /// Writes down a step.
    pub(crate) fn step(&mut self, report: &StepReport) -> Result<(), Error> {
        let line = StepLine {
            step: report.step,
            loss: report.loss,
            gradient_norm: report.gradient_norm,
            learning_rate: report.learning_rate,
            tokens: report.tokens,
            seconds: report.seconds,
            stall_seconds: report.stall.as_secs_f64(),
            skipped: report.skipped,
            unix_seconds: now().as_secs_f64(),
        };
        push(&mut self.steps, &line)?;
        self.scalars(
            report.step,
            &[
                ("train/loss", line.loss),
                ("train/gradient_norm", line.gradient_norm),
                ("train/learning_rate", line.learning_rate),
                ("train/tokens_per_second", line.tokens as f64 / line.seconds),
                ("checkpoint/stall_ms", line.stall_seconds * 1e3),
            ],
        )
    }

    /// Writes down an evaluation.
    pub(crate) fn evaluation(&mut self, step: u64, found: &Evaluation) -> Result<(), Error> {
        let line = EvaluationLine {
            step,
            loss: found.loss,
            tokens: found.tokens,
            unix_seconds: now().as_secs_f64(),
        };
        push(&mut self.evaluations, &line)?;
        self.scalars(step, &[("evaluation/loss", found.loss)])
    }

    fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<(), Error> {
        let Some(journal) = &mut self.events else {
            return Ok(());
        };
        let time = now().as_secs_f64();
        let scalar = |(tag, value): &(&str, f64)| events::scalar(time, step, tag, *value);
        let records: Vec<u8> = scalars.iter().flat_map(scalar).collect();
        Ok(journal.push(&records)?)
    }
}

/// The numbers of a file of metrics, line by line.
pub(crate) fn read(folder: &str) -> Result<Vec<Value>, Error> {
    Ok(lines(&Local::new(folder), METRICS)?.collect::<Vec<_>>())
}

/// The file of lines, without those of later steps.
fn begin(store: &Local, name: &str, start: Start) -> Result<Journal, Error> {
    let (mut kept, mut dropped) = (String::new(), String::new());
    for line in lines(store, name)? {
        match line["step"].as_u64() {
            Some(step) if step <= start.from => kept.push_str(&format!("{line}\n")),
            Some(_) => dropped.push_str(&format!("{line}\n")),
            None => {}
        }
    }
    if start.went_back && !dropped.is_empty() {
        put_aside(store, name, &dropped)?;
    }
    Ok(Journal::begin(store, name, kept.as_bytes())?)
}

/// Keeps lines that are dropped, after those that were dropped before.
fn put_aside(store: &Local, name: &str, dropped: &str) -> Result<(), Error> {
    let name = name.replace("jsonl", ABANDONED);
    let mut all = match store.get(&name) {
        Err(store::Error::NotFound { .. }) => Vec::new(),
        bytes => bytes?,
    };
    all.extend(dropped.as_bytes());
    Ok(store.put(&name, &all, PutMode::Replace)?)
}

/// The lines that are whole; the last may not be.
fn lines(store: &Local, name: &str) -> Result<impl Iterator<Item = Value> + use<>, Error> {
    let bytes = match store.get(name) {
        Err(store::Error::NotFound { .. }) => Vec::new(),
        bytes => bytes?,
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let whole: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    Ok(whole.into_iter())
}

fn begin_events(store: &Local, from: u64) -> Result<Journal, Error> {
    let time = now();
    let seconds = time.as_secs_f64();
    let name = format!("events.out.tfevents.{}.cairn", time.as_millis());
    let start = [events::header(seconds), events::start(seconds, from + 1)].concat();
    Ok(Journal::begin(store, &name, &start)?)
}

fn push(journal: &mut Journal, line: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(line).map_err(|error| Error::Output(error.into()))?;
    Ok(journal.push(format!("{text}\n").as_bytes())?)
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    //! Lines after a resume.

    use super::*;
    use proptest::prelude::*;

    fn report(step: u64) -> StepReport {
        StepReport {
            step,
            loss: 1.0 / step as f64,
            gradient_norm: 1.0,
            learning_rate: 1e-3,
            tokens: 10,
            skipped: false,
            seconds: 0.5,
            stall: Duration::ZERO,
            stop: false,
        }
    }

    fn start(from: u64) -> Start {
        Start {
            from,
            went_back: false,
        }
    }

    #[test]
    fn lines_of_steps_that_were_saved_are_put_aside_when_a_run_goes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let aside = || {
            let found = lines(&Local::new(path), "metrics.abandoned.jsonl").unwrap();
            let steps = found.map(|line| line["step"].as_u64().unwrap());
            steps.collect::<Vec<_>>()
        };
        let mut metrics = Metrics::begin(path, start(0), false).unwrap();
        (1..=5).for_each(|step| metrics.step(&report(step)).unwrap());
        // Steps after the newest checkpoint are made again as they were.
        drop(Metrics::begin(path, start(4), false).unwrap());
        assert!(aside().is_empty());
        let back = Start {
            from: 2,
            went_back: true,
        };
        drop(Metrics::begin(path, back, false).unwrap());
        assert_eq!(aside(), [3, 4]);
        let back = Start { from: 1, ..back };
        drop(Metrics::begin(path, back, false).unwrap());
        assert_eq!(aside(), [3, 4, 2]);
        assert_eq!(read(path).unwrap().len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn every_step_is_there_once_whatever_is_killed_and_resumed(
            lives in proptest::collection::vec((0_u64..20, 0_u64..10, 0_usize..30), 1..5)
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().to_str().unwrap();
            let mut done = 0;
            for (steps, lost, torn) in lives {
                let from = u64::saturating_sub(done, lost);
                let mut metrics = Metrics::begin(path, start(from), false).unwrap();
                for step in from + 1..=from + steps {
                    metrics.step(&report(step)).unwrap();
                }
                done = from + steps;
                // Killed in the middle of a line.
                let half = &b"{\"step\": 999, \"loss\": 1.0, \"x\""[..torn];
                metrics.steps.push(half).unwrap();
            }
            let metrics = Metrics::begin(path, start(done), true).unwrap();
            drop(metrics);
            let steps: Vec<u64> = read(path).unwrap().iter().map(|line| line["step"].as_u64().unwrap()).collect();
            prop_assert_eq!(steps, (1..=done).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_loss_that_is_no_number_is_null() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let mut metrics = Metrics::begin(path, start(0), true).unwrap();
        let mut step = report(1);
        step.loss = f64::NAN;
        metrics.step(&step).unwrap();
        assert_eq!(read(path).unwrap()[0]["loss"], Value::Null);
    }
}
