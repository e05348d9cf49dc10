//! From a path to what lies there: a run, a step, or a model in another format.

use crate::error::Error;
use crate::printer::Printer;
use cairn::checkpoint::{
    Checkpoint, Checkpointer, Error as CheckpointError, ModelSource, Source, World, all_steps,
    parse_step_folder,
};
use cairn::formats::{self, Error as FormatError};
use cairn::store::{self, Store};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What lies at a path.
#[derive(Debug)]
pub(crate) enum Place {
    Run(Arc<dyn Store>),
    Step(Arc<dyn Store>, u64),
    Folder(ModelSource),
    File(ModelSource),
}

/// Something tensors can be read from.
#[derive(Debug)]
pub(crate) enum Opened {
    Checkpoint {
        run: Arc<dyn Store>,
        checkpoint: Box<Checkpoint>,
        /// Whether a run was named, and this is its newest step.
        latest: bool,
    },
    Folder(ModelSource),
    File(ModelSource),
}

impl Opened {
    pub(crate) fn source(&self) -> &dyn Source {
        match self {
            Opened::Checkpoint { checkpoint, .. } => checkpoint.as_ref(),
            Opened::Folder(model) | Opened::File(model) => model,
        }
    }

    /// The checkpoint, if it is one of ours.
    pub(crate) fn checkpoint(&self) -> Option<&Checkpoint> {
        match self {
            Opened::Checkpoint { checkpoint, .. } => Some(checkpoint),
            Opened::Folder(_) | Opened::File(_) => None,
        }
    }

    /// The plain values all ranks share.
    pub(crate) fn values(&self) -> &BTreeMap<String, Value> {
        match self {
            Opened::Checkpoint { checkpoint, .. } => checkpoint.values(),
            Opened::Folder(model) | Opened::File(model) => &model.model().values,
        }
    }

    /// The name of a file of the source, as a reader of the folder sees it.
    pub(crate) fn file_name(&self, file: usize) -> String {
        match self {
            Opened::Checkpoint { checkpoint, .. } => checkpoint.data_key(file),
            Opened::Folder(model) | Opened::File(model) => model.model().files[file].key.clone(),
        }
    }
}

/// Opens what lies at `path`; of a run, its newest whole step.
pub(crate) fn open(path: &str, printer: &Printer) -> Result<Opened, Error> {
    let (run, step) = match find(path)? {
        Place::Folder(model) => return Ok(Opened::Folder(model)),
        Place::File(model) => return Ok(Opened::File(model)),
        Place::Run(run) => (run, None),
        Place::Step(run, step) => (run, Some(step)),
    };
    let reader = Checkpointer::new(run.clone(), World::single());
    let checkpoint = match step {
        Some(step) => reader.open(step)?,
        None => {
            let latest = reader.latest()?;
            for skipped in &latest.skipped {
                let reason = &skipped.reason;
                printer.warn(&format!("passing over step {}: {reason}", skipped.step));
            }
            latest.checkpoint
        }
    };
    Ok(Opened::Checkpoint {
        run,
        checkpoint: Box::new(checkpoint),
        latest: step.is_none(),
    })
}

/// The store of the run at `path`, and the step if a step was named.
pub(crate) fn open_run(path: &str) -> Result<(Arc<dyn Store>, Option<u64>), Error> {
    match find(path) {
        Ok(Place::Run(run)) => Ok((run, None)),
        Ok(Place::Step(run, step)) => Ok((run, Some(step))),
        Ok(Place::Folder(_) | Place::File(_)) | Err(Error::NotACheckpoint { .. }) => {
            Err(Error::NotARun { path: path.into() })
        }
        Err(error) => Err(error),
    }
}

/// The store of the run at `path`, which need not exist yet.
pub(crate) fn target_run(path: &str) -> Result<Arc<dyn Store>, Error> {
    if let Some(step) = parse_step_folder(&split(path).1) {
        let path = path.into();
        return Err(Error::StepAsTarget { path, step });
    }
    Ok(store::open(path)?)
}

/// Finds out what lies at `path`.
pub(crate) fn find(path: &str) -> Result<Place, Error> {
    let (parent, name) = split(path);
    let above = store::open(&parent)?;
    if let Some(step) = parse_step_folder(&name) {
        let steps = all_steps(above.as_ref())?;
        return match steps.contains(&step) {
            true => Ok(Place::Step(above, step)),
            false if steps.is_empty() => Err(Error::NoSuchPath { path: path.into() }),
            false => Err(no_such_step(above, step)?),
        };
    }
    if is_file(above.as_ref(), &name) {
        return match formats::open_file(above.as_ref(), &name) {
            Ok(model) => Ok(Place::File(ModelSource::new(above, model))),
            Err(FormatError::NotAModel { .. }) => Err(Error::NotACheckpoint { path: path.into() }),
            Err(error) => Err(error.into()),
        };
    }
    let here = store::open(path)?;
    if !all_steps(here.as_ref())?.is_empty() {
        return Ok(Place::Run(here));
    }
    match formats::open(here.as_ref()) {
        Ok(model) => Ok(Place::Folder(ModelSource::new(here, model))),
        Err(FormatError::NotAModel { .. }) => Err(match is_folder(above.as_ref(), &name) {
            true => Error::NotACheckpoint { path: path.into() },
            false => Error::NoSuchPath { path: path.into() },
        }),
        Err(error) => Err(error.into()),
    }
}

fn no_such_step(run: Arc<dyn Store>, step: u64) -> Result<Error, Error> {
    let url = run.url();
    let available = Checkpointer::new(run, World::single()).steps()?;
    Ok(Error::Checkpoint(CheckpointError::NoSuchStep {
        step,
        url,
        available,
    }))
}

fn is_file(above: &dyn Store, name: &str) -> bool {
    above.head(name).is_ok_and(|found| found.is_some())
}

/// Whether a folder exists, or cannot be told not to.
fn is_folder(above: &dyn Store, name: &str) -> bool {
    let folders = above.list_folders("");
    name.is_empty() || folders.is_ok_and(|folders| folders.iter().any(|folder| folder == name))
}

/// The folder a path lies in, and its name there. `.` is looked up, so that it has a name, too.
pub(crate) fn split(path: &str) -> (String, String) {
    let is_url = path.contains("://") || path.starts_with("file:");
    let whole = match std::path::absolute(path) {
        Ok(absolute) if !is_url => absolute.to_str().unwrap_or(path).to_string(),
        _ => path.to_string(),
    };
    let whole = match whole.trim_end_matches('/') {
        "" if whole.starts_with('/') => return ("/".into(), String::new()),
        trimmed => trimmed,
    };
    match whole.rsplit_once('/') {
        Some(("", name)) => ("/".into(), name.into()),
        Some((parent, name)) => (parent.into(), name.into()),
        None => (whole.into(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_are_split_at_their_last_name() {
        let case = |path| {
            let (parent, name) = split(path);
            format!("{parent} {name}")
        };
        assert_eq!(case("/data/run/"), "/data run");
        assert_eq!(case("/run"), "/ run");
        assert_eq!(case("file:///data/run"), "file:///data run");
        let here = std::path::absolute("x/y").unwrap();
        assert_eq!(
            case("x/./y"),
            format!("{} y", here.parent().unwrap().display())
        );
    }

    #[test]
    fn the_root_and_nothing_have_no_name() {
        assert_eq!(split("/"), ("/".into(), "".into()));
        assert_eq!(split(""), ("".into(), "".into()));
    }
}
