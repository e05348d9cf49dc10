//! The steps of a run, as a reader sees them.

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::checkpointer::Latest;
use crate::commit::chain;
use crate::error::{Skipped, StoreContext};
use crate::names::{commit_key, parse_step_folder};
use crate::signing::PublicKey;
use crate::verify::check_structure;
use cairn_store::Store;
use std::sync::Arc;

/// The steps that have a folder, committed or not, ascending.
pub fn all_steps(store: &dyn Store) -> Result<Vec<u64>, Error> {
    let folders = store
        .list_folders("")
        .doing(|| format!("list `{}`", store.url()))?;
    let mut steps: Vec<u64> = folders
        .iter()
        .filter_map(|folder| parse_step_folder(folder))
        .collect();
    steps.sort_unstable();
    Ok(steps)
}

/// The steps that have a `COMMIT`, ascending.
pub(crate) fn committed_steps(store: &dyn Store) -> Result<Vec<u64>, Error> {
    let mut committed = Vec::new();
    for step in all_steps(store)? {
        let key = commit_key(step);
        let head = store.head(&key).doing(|| format!("look for `{key}`"))?;
        if head.is_some() {
            committed.push(step);
        }
    }
    Ok(committed)
}

/// Opens a committed step, or says which ones there are.
pub(crate) fn open(
    store: &Arc<dyn Store>,
    step: u64,
    key: Option<&PublicKey>,
) -> Result<Checkpoint, Error> {
    match open_trusted(store, step, key) {
        Err(Error::Incomplete { .. }) if !all_steps(store.as_ref())?.contains(&step) => {
            Err(Error::NoSuchStep {
                step,
                url: store.url(),
                available: committed_steps(store.as_ref())?,
            })
        }
        result => result,
    }
}

/// Opens a step, and requires that `key` signed it, if there is one.
pub(crate) fn open_trusted(
    store: &Arc<dyn Store>,
    step: u64,
    key: Option<&PublicKey>,
) -> Result<Checkpoint, Error> {
    let checkpoint = Checkpoint::open(store.clone(), step)?;
    match key {
        None => Ok(checkpoint),
        Some(key) => checkpoint.require_key(key),
    }
}

/// The newest step whose structure is whole.
pub(crate) fn latest(store: &Arc<dyn Store>, key: Option<&PublicKey>) -> Result<Latest, Error> {
    walk_back(store, key, |_| Ok(())).map(|(latest, ())| latest)
}

/// Tries `use_it` on the newest whole step, then on older ones for as long as damage is found.
pub(crate) fn walk_back<T>(
    store: &Arc<dyn Store>,
    key: Option<&PublicKey>,
    mut use_it: impl FnMut(&Checkpoint) -> Result<T, Error>,
) -> Result<(Latest, T), Error> {
    let mut skipped = Vec::new();
    for step in committed_steps(store.as_ref())?.into_iter().rev() {
        let tried = open_trusted(store, step, key).and_then(|checkpoint| {
            check_structure(&checkpoint)?;
            let used = use_it(&checkpoint)?;
            Ok((checkpoint, used))
        });
        match tried {
            Ok((checkpoint, used)) => {
                let latest = Latest {
                    checkpoint,
                    skipped,
                };
                return Ok((latest, used));
            }
            // One that is gone since the run was listed is passed over like a damaged one.
            Err(error)
                if error.is_damage()
                    || matches!(error, Error::Deleted { .. } | Error::Incomplete { .. }) =>
            {
                let reason = chain(&error);
                tracing::warn!(step, reason, "passing over a step that cannot be used");
                skipped.push(Skipped { step, reason });
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::NothingUsable {
        url: store.url(),
        skipped,
    })
}
