//! Opens what lies at a path, with a warning for every step that is passed over.

use crate::error::Error;
use crate::keys;
use crate::printer::Printer;
use cairn::checkpoint::SharedSource;
use cairn::checkpoint::{
    Checkpoint, Checkpointer, Error as CheckpointError, ModelSource, Place, Source, World, find,
    parse_step_folder, split_path, step_folder,
};
use cairn::formats::Model;
use cairn::store::{self, Store};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

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

    /// The tensors, for whoever keeps them.
    pub(crate) fn into_source(self) -> SharedSource {
        match self {
            Opened::Checkpoint { checkpoint, .. } => {
                Arc::from(checkpoint as Box<dyn Source + Send>)
            }
            Opened::Folder(model) | Opened::File(model) => Arc::new(model),
        }
    }

    /// The checkpoint, if it is one of ours.
    pub(crate) fn checkpoint(&self) -> Option<&Checkpoint> {
        match self {
            Opened::Checkpoint { checkpoint, .. } => Some(checkpoint),
            Opened::Folder(_) | Opened::File(_) => None,
        }
    }

    /// The model, if it is one of another format.
    pub(crate) fn model(&self) -> Option<&Model> {
        match self {
            Opened::Checkpoint { .. } => None,
            Opened::Folder(model) | Opened::File(model) => Some(model.model()),
        }
    }

    /// The plain values all ranks share.
    pub(crate) fn values(&self) -> &BTreeMap<String, Value> {
        match self {
            Opened::Checkpoint { checkpoint, .. } => checkpoint.values(),
            Opened::Folder(model) | Opened::File(model) => &model.model().values,
        }
    }

    /// Words that change when other bytes lie there: of a step its attempt, of files their lengths and times.
    pub(crate) fn identity(&self) -> Result<String, Error> {
        let model = match self {
            Opened::Checkpoint {
                run, checkpoint, ..
            } => {
                let manifest = checkpoint.manifest();
                let (url, step, attempt) = (run.url(), manifest.step, &manifest.attempt);
                return Ok(format!("{url} step {step} attempt {attempt}"));
            }
            Opened::Folder(model) | Opened::File(model) => model,
        };
        let mut text = model.store().url();
        for file in &model.model().files {
            let modified = model.store().head(&file.key)?.map(|meta| meta.modified);
            let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let time = since.map_or(0, |since| since.as_nanos());
            text.push_str(&format!("\n{} {} {time}", file.key, file.len_bytes));
        }
        Ok(text)
    }

    /// The name of a file of the source, as a reader of the folder sees it.
    pub(crate) fn file_name(&self, file: usize) -> String {
        match self {
            Opened::Checkpoint { checkpoint, .. } => checkpoint.data_key(file),
            Opened::Folder(model) | Opened::File(model) => model.model().files[file].key.clone(),
        }
    }
}

/// Opens what lies at `path`; of a run, its newest whole step, or the one named as in `runs/7b:1000`.
pub(crate) fn open(path: &str, printer: &Printer) -> Result<Opened, Error> {
    open_place(path, place(path)?, printer)
}

/// Opens what was found at `path`; of a run, its newest whole step.
pub(crate) fn open_place(path: &str, place: Place, printer: &Printer) -> Result<Opened, Error> {
    let (run, step) = match place {
        Place::Folder(model) => return unsigned(path).map(|()| Opened::Folder(model)),
        Place::File(model) => return unsigned(path).map(|()| Opened::File(model)),
        Place::Run(run) => (run, None),
        Place::Step(run, step) => (run, Some(step)),
    };
    let reader = Checkpointer::with_options(run.clone(), World::single(), keys::options()?);
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

/// Refuses what carries no signature, if one is required.
pub(crate) fn unsigned(path: &str) -> Result<(), Error> {
    match keys::required()? {
        None => Ok(()),
        Some(_) => Err(Error::Unsigned { path: path.into() }),
    }
}

/// What lies at `path`.
pub(crate) fn place(path: &str) -> Result<Place, Error> {
    Ok(find(&spell_out(path))?)
}

/// The path of a step that is named `RUN:STEP`; any other path as it is.
fn spell_out(path: &str) -> Cow<'_, str> {
    let named = path.rsplit_once(':');
    let named = named.and_then(|(run, step)| Some((run, step.parse().ok()?)));
    match named {
        Some((run, step)) => format!("{run}/{}", step_folder(step)).into(),
        None => path.into(),
    }
}

/// The store of the run at `path`, and the step if a step was named.
pub(crate) fn open_run(path: &str) -> Result<(Arc<dyn Store>, Option<u64>), Error> {
    match find(&spell_out(path)) {
        Ok(Place::Run(run)) => Ok((run, None)),
        Ok(Place::Step(run, step)) => Ok((run, Some(step))),
        Ok(Place::Folder(_) | Place::File(_)) | Err(CheckpointError::NotACheckpoint { .. }) => {
            Err(Error::NotARun { path: path.into() })
        }
        Err(error) => Err(error.into()),
    }
}

/// The store of the run at `path`, which need not exist yet.
pub(crate) fn target_run(path: &str) -> Result<Arc<dyn Store>, Error> {
    if let Some(step) = parse_step_folder(&split_path(path).1) {
        let path = path.into();
        return Err(Error::StepAsTarget { path, step });
    }
    Ok(store::open(path)?)
}
