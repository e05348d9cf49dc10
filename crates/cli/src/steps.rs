//! Several steps named at once: `runs/7b:1000..12000:1000`.

use crate::error::Error;
use crate::keys;
use crate::open::{open_run, unsigned};
use cairn::checkpoint::SharedSource;
use cairn::checkpoint::{Checkpoint, Checkpointer, Place, World, find};
use cairn::store::Store;
use serde_json::Value;
use std::collections::BTreeMap;
use std::iter::successors;
use std::sync::Arc;

/// A step, or a model of another tool, that was named among several.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) step: Option<u64>,
    pub(crate) source: SharedSource,
    pub(crate) values: BTreeMap<String, Value>,
}

/// The steps from `first` to `last`; with `every`, exactly those that far apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u64,
    last: u64,
    every: Option<u64>,
}

/// Opens every step that `text` names, in order.
pub(crate) fn open_steps(text: &str) -> Result<Vec<Named>, Error> {
    let (path, range) = split_range(text);
    if let Some(range) = range {
        let (run, None) = open_run(path)? else {
            return Err(Error::NotARun { path: path.into() });
        };
        let reader = reader(run)?;
        let steps = range.choose(path, &reader.steps()?)?;
        return steps
            .into_iter()
            .map(|step| open_step(path, &reader, step))
            .collect();
    }
    let (source, values): (SharedSource, _) = match find(path)? {
        Place::Folder(model) | Place::File(model) => {
            unsigned(path)?;
            let values = model.model().values.clone();
            (Arc::new(model), values)
        }
        Place::Step(run, step) => {
            return Ok(vec![named(path.into(), reader(run)?.open(step)?)]);
        }
        Place::Run(run) => {
            let reader = reader(run)?;
            let steps = reader.steps()?.into_iter();
            return steps.map(|step| open_step(path, &reader, step)).collect();
        }
    };
    Ok(vec![Named {
        name: path.into(),
        step: None,
        source,
        values,
    }])
}

fn reader(run: Arc<dyn Store>) -> Result<Checkpointer, Error> {
    let options = keys::options()?;
    Ok(Checkpointer::with_options(run, World::single(), options))
}

fn open_step(path: &str, reader: &Checkpointer, step: u64) -> Result<Named, Error> {
    Ok(named(format!("{path}:{step}"), reader.open(step)?))
}

fn named(name: String, checkpoint: Checkpoint) -> Named {
    Named {
        name,
        step: Some(checkpoint.step()),
        values: checkpoint.values().clone(),
        source: Arc::new(checkpoint),
    }
}

/// Takes `:1000`, `:1000..2000` or `:1000..2000:100` off the end.
fn split_range(text: &str) -> (&str, Option<Range>) {
    let parsed = || {
        let (head, tail) = text.rsplit_once(':')?;
        if let Some((path, range)) = head.rsplit_once(':')
            && let Some((first, last)) = range.split_once("..")
        {
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            let every = Some(tail.parse().ok().filter(|every| *every > 0)?);
            return Some((path, Range { first, last, every }));
        }
        let (first, last) = tail.split_once("..").unwrap_or((tail, tail));
        let every = (first == last).then_some(1);
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        Some((head, Range { first, last, every }))
    };
    match parsed() {
        Some((path, range)) => (path, Some(range)),
        None => (text, None),
    }
}

impl Range {
    /// Those of the `committed` steps of the run at `path` that it names.
    fn choose(self, path: &str, committed: &[u64]) -> Result<Vec<u64>, Error> {
        let missing = |range: String| Error::NoSuchSteps {
            path: path.into(),
            range,
            available: committed.to_vec(),
        };
        let inside = |step: &u64| (self.first..=self.last).contains(step);
        let Some(every) = self.every else {
            let chosen: Vec<u64> = committed.iter().copied().filter(inside).collect();
            return match chosen.is_empty() {
                true => Err(missing(format!("{}..{}", self.first, self.last))),
                false => Ok(chosen),
            };
        };
        let steps = successors(Some(self.first), |step| step.checked_add(every));
        let wanted = steps.take_while(|step| *step <= self.last);
        // No more than one beyond those there are is looked for.
        let wanted: Vec<u64> = wanted.take(committed.len() + 1).collect();
        match wanted.iter().find(|step| !committed.contains(step)) {
            Some(step) => Err(missing(step.to_string())),
            None if wanted.is_empty() => Err(missing(format!("{}..{}", self.first, self.last))),
            None => Ok(wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_ends_in_numbers() {
        let range = |first, last, every| Some(Range { first, last, every });
        let cases = [
            ("runs/a", "runs/a", None),
            ("runs/a:7", "runs/a", range(7, 7, Some(1))),
            ("a:1..5", "a", range(1, 5, None)),
            ("a:1..5:2", "a", range(1, 5, Some(2))),
            ("file:///a:1..5", "file:///a", range(1, 5, None)),
            ("file:///a", "file:///a", None),
            ("a:b", "a:b", None),
            ("a:1..5:0", "a:1..5:0", None),
            ("a:1..", "a:1..", None),
            ("a:b:3", "a:b", range(3, 3, Some(1))),
        ];
        for (text, path, range) in cases {
            assert_eq!(split_range(text), (path, range), "{text}");
        }
    }

    #[test]
    fn a_step_that_is_missing_is_named() {
        let committed = [10, 20, 30, 50];
        let choose = |text| split_range(text).1.unwrap().choose("run", &committed);
        assert_eq!(choose("run:10..30").unwrap(), [10, 20, 30]);
        assert_eq!(choose("run:10..30:20").unwrap(), [10, 30]);
        assert_eq!(choose("run:0..99").unwrap(), committed);
        for (text, error) in [
            ("run:10..50:10", "there is no step 40 in `run`"),
            ("run:11..19", "there is no step 11..19 in `run`"),
            ("run:30..10:10", "there is no step 30..10 in `run`"),
            (
                "run:0..18446744073709551615:1",
                "there is no step 0 in `run`",
            ),
        ] {
            assert_eq!(choose(text).unwrap_err().to_string(), error);
        }
    }
}
