//! The deletion of steps, in two moves that each leave a run that can be read.

use super::plan::PrunePlan;
use crate::Error;
use crate::commit::{committed_attempt, hidden_attempt};
use crate::delta::References;
use crate::error::StoreContext;
use crate::manifest::Manifest;
use crate::names::{AttemptKeys, commit_key, deleted_key, is_pin, step_folder};
use crate::tags::tags_of;
use cairn_store::{PutMode, Store};

/// Does what `plan` says, on tiers on the durable one, and returns the steps that it spared: they were tagged or saved anew since it was made.
///
/// # Crash safety
/// A step loses its `COMMIT` first, in one move, so nobody finds half a step. What is left of it says that it is deleted, and the next
/// pruning takes it away.
///
/// # Errors
/// If something cannot be deleted. Deleting again is harmless.
pub fn prune(store: &dyn Store, plan: &PrunePlan) -> Result<Vec<u64>, Error> {
    let store = store
        .tiers()
        .map_or(store, |tiers| tiers.durable().as_ref());
    let (mut spared, mut gone) = (Vec::new(), Vec::new());
    for (step, attempt) in &plan.remove {
        if !hide(store, *step, attempt)? {
            spared.push(*step);
        } else if plan.grace.is_zero() {
            gone.extend(going(store, *step)?);
        }
    }
    for step in plan.purge.iter().chain(&plan.beside) {
        gone.extend(going(store, *step)?);
    }
    let folders = gone.iter().map(|(_, folder)| folder);
    for folder in folders.chain(&plan.leftovers) {
        delete_pins(store, folder)?;
    }
    // Not those of the plan, which may be old, and not before each `COMMIT` that goes is gone.
    let references = References::read(store, &|_| false)?;
    for (step, folder) in &gone {
        erase(store, *step, folder, &references)?;
    }
    for folder in &plan.leftovers {
        delete_others(store, folder, &references)?;
    }
    for upload in &plan.uploads {
        let doing = || format!("give up the upload of `{}`", upload.key);
        store.abort(upload).doing(doing)?;
    }
    // What dead writers left half-written is in no listing.
    store.sweep("").doing(|| "sweep the run".into())?;
    Ok(spared)
}

/// Takes the step away from readers. Whether it did: a step that is not the planned one, or has a tag, comes back.
fn hide(store: &dyn Store, step: u64, attempt: &str) -> Result<bool, Error> {
    let (commit, deleted) = (commit_key(step), deleted_key(step));
    match store.rename(&commit, &deleted, PutMode::Replace) {
        // Somebody else did.
        Err(cairn_store::Error::NotFound { .. }) => return Ok(true),
        result => result.doing(|| format!("delete `{commit}`"))?,
    }
    let bytes = store.get(&deleted).doing(|| format!("read `{deleted}`"))?;
    // Looked for after the rename: whoever tags a step looks for its `COMMIT` afterwards, so one of the two sees the other.
    let manifest = Manifest::decode(&deleted, &bytes)?;
    if manifest.attempt != attempt || !tags_of(store, &manifest)?.is_empty() {
        return match store.rename(&deleted, &commit, PutMode::Create) {
            // Saved anew meanwhile; what was deleted stays so.
            Err(cairn_store::Error::AlreadyExists { .. }) => Ok(true),
            result => result
                .doing(|| format!("bring back `{commit}`"))
                .map(|()| false),
        };
    }
    // Put again, for the time of it: the grace period begins now.
    let put = store.put(&deleted, &bytes, PutMode::Replace);
    put.doing(|| format!("write `{deleted}`")).map(|()| true)
}

/// The folder of a hidden step, whose files go. Those of a step that came back stay: in a bucket a rename is two moves, and whoever
/// brought it back may have made only the first.
fn going(store: &dyn Store, step: u64) -> Result<Option<(u64, String)>, Error> {
    let Some(attempt) = hidden_attempt(store, step)? else {
        return Ok(None);
    };
    if committed_attempt(store, step)?.as_ref() == Some(&attempt) {
        return delete(store, &deleted_key(step)).map(|()| None);
    }
    Ok(Some((step, AttemptKeys::new(step, &attempt).folder)))
}

/// Deletes the files of a step that is hidden, but for those that others refer to. A save of the same step, done or under way, has
/// files of its own, which stay.
fn erase(store: &dyn Store, step: u64, folder: &str, references: &References) -> Result<(), Error> {
    if !delete_others(store, folder, references)? {
        return Ok(());
    }
    let (key, folder) = (deleted_key(step), step_folder(step));
    // Listed before the look for `COMMIT`: what belongs to a step that is saved anew meanwhile is not in it.
    let beside = store
        .list_files(&folder)
        .doing(|| format!("list `{folder}`"))?;
    if committed_attempt(store, step)?.is_none() {
        let kept = [&key, &commit_key(step)];
        for meta in beside.iter().filter(|meta| !kept.contains(&&meta.key)) {
            delete(store, &meta.key)?;
        }
    }
    // Last, so that what is left of a step always says that it is deleted.
    delete(store, &key)
}

/// Deletes what lies in `folder` and nobody refers to. Returns whether that is all of it.
fn delete_others(store: &dyn Store, folder: &str, references: &References) -> Result<bool, Error> {
    let listing = store.list(folder).doing(|| format!("list `{folder}`"))?;
    let (held, free): (Vec<_>, Vec<_>) = listing
        .iter()
        .partition(|meta| references.holders(&meta.key).is_some());
    free.iter().try_for_each(|meta| delete(store, &meta.key))?;
    Ok(held.is_empty())
}

/// Takes away what an attempt says that it may refer to: it does not any more.
pub(crate) fn delete_pins(store: &dyn Store, folder: &str) -> Result<(), Error> {
    let listing = store
        .list_files(folder)
        .doing(|| format!("list `{folder}`"))?;
    let mut pins = listing.iter().filter(|meta| is_pin(&meta.key));
    pins.try_for_each(|meta| delete(store, &meta.key))
}

fn delete(store: &dyn Store, key: &str) -> Result<(), Error> {
    store.delete(key).doing(|| format!("delete `{key}`"))
}
