//! The steps of a run, as a reader sees them.

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::checkpointer::Latest;
use crate::commit::chain;
use crate::error::{Skipped, StoreContext};
use crate::names::{commit_key, parse_step_folder};
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
pub(crate) fn open(store: &Arc<dyn Store>, step: u64) -> Result<Checkpoint, Error> {
    match Checkpoint::open(store.clone(), step) {
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

/// The newest step whose structure is whole.
pub(crate) fn latest(store: &Arc<dyn Store>) -> Result<Latest, Error> {
    walk_back(store, |_| Ok(())).map(|(latest, ())| latest)
}

/// Tries `use_it` on the newest whole step, then on older ones for as long as damage is found.
pub(crate) fn walk_back<T>(
    store: &Arc<dyn Store>,
    mut use_it: impl FnMut(&Checkpoint) -> Result<T, Error>,
) -> Result<(Latest, T), Error> {
    let mut skipped = Vec::new();
    for step in committed_steps(store.as_ref())?.into_iter().rev() {
        let tried = Checkpoint::open(store.clone(), step).and_then(|checkpoint| {
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
            Err(error) if error.is_damage() => {
                let reason = chain(&error);
                tracing::warn!(step, reason, "passing over a damaged step");
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
