//! The deletion of steps, in two moves that each leave a run that can be read.

use super::known::Known;
use super::plan::PrunePlan;
use crate::Error;
use crate::delta::References;
use crate::error::StoreContext;
use crate::manifest::Brief;
use crate::names::{
    AttemptKeys, commit_key, deleted_key, hidden_key, is_pin, parse_step_folder, step_folder,
};
use crate::standing::{
    Hidden, committed_attempt, confirm, deleted_attempt, hidden_attempt, hide, restore,
};
use crate::tags::tags_beside;
use cairn_store::{PutMode, Store};

/// Does what `plan` says, on tiers on the durable one, and returns the steps that it spared: they were tagged or saved anew since it was made.
///
/// # Crash safety
/// A step is hidden first, and committed until it is sure that it may go; if the pruning dies before that, the next one brings it back. Then it
/// is deleted, in one move, so nobody finds half a step: what is left of it says so, and the next pruning takes it away.
///
/// # Errors
/// If something cannot be deleted. Deleting again is harmless.
pub fn prune(store: &dyn Store, plan: &PrunePlan) -> Result<Vec<u64>, Error> {
    prune_knowing(store, plan, &Known::nothing())
}

/// As [`prune`], where something is known of the steps that stay.
pub(super) fn prune_knowing(
    store: &dyn Store,
    plan: &PrunePlan,
    known: &Known,
) -> Result<Vec<u64>, Error> {
    let store = store
        .tiers()
        .map_or(store, |tiers| tiers.durable().as_ref());
    let (mut spared, mut gone) = (Vec::new(), Vec::new());
    for step in &plan.hidden {
        bring_back(store, *step)?;
    }
    for (step, attempt) in &plan.remove {
        if !remove(store, *step, attempt)? {
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
    let references = References::read(store, known, &|_| false)?;
    for (step, folder) in &gone {
        erase(store, *step, folder, &references)?;
    }
    for folder in &plan.leftovers {
        match parse_step_folder(folder) {
            Some(step) => delete_beside(store, step)?,
            None => drop(delete_others(store, folder, &references)?),
        }
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
fn remove(store: &dyn Store, step: u64, attempt: &str) -> Result<bool, Error> {
    // Tags are looked for when it is hidden: whoever tags a step looks for its `COMMIT` afterwards, so one of the two sees the other.
    let is_planned = |found: &Brief| {
        Ok(found.attempt == attempt && tags_beside(store, found.step, &found.tags)?.is_empty())
    };
    let bytes = match hide(store, step, is_planned)? {
        Hidden::Here(bytes) => bytes,
        Hidden::Spared => return Ok(false),
        // Somebody else did.
        Hidden::Gone => return Ok(true),
    };
    if !confirm(store, step)? {
        return Ok(false);
    }
    // Put again, for the time of it: the grace period begins now.
    let deleted = deleted_key(step);
    let put = store.put(&deleted, &bytes, PutMode::Replace);
    put.doing(|| format!("write `{deleted}`")).map(|()| true)
}

/// Brings back a step that a pruning hid and nobody is at any more. If it was saved anew, what is hidden is deleted.
fn bring_back(store: &dyn Store, step: u64) -> Result<(), Error> {
    if !restore(store, step)? {
        return Ok(());
    }
    match (committed_attempt(store, step), hidden_attempt(store, step)) {
        // In a bucket a rename is two moves, and whoever made the first one died.
        (Ok(here), Ok(aside)) if here == aside => delete(store, &hidden_key(step)),
        (Ok(_), Ok(_)) => confirm(store, step).map(drop),
        // One of them is damaged: both are evidence.
        _ => Ok(()),
    }
}

/// The folder of a deleted step, whose files go. Those of a step that came back stay: in a bucket a rename is two moves, and whoever
/// brought it back may have made only the first.
fn going(store: &dyn Store, step: u64) -> Result<Option<(u64, String)>, Error> {
    let Some(attempt) = deleted_attempt(store, step)? else {
        return Ok(None);
    };
    if committed_attempt(store, step)?.as_ref() == Some(&attempt) {
        return delete(store, &deleted_key(step)).map(|()| None);
    }
    Ok(Some((step, AttemptKeys::new(step, &attempt).folder)))
}

/// Deletes the files of a step that is deleted, but for those that others refer to. A save of the same step, done or under way, has
/// files of its own, which stay.
fn erase(store: &dyn Store, step: u64, folder: &str, references: &References) -> Result<(), Error> {
    if !delete_others(store, folder, references)? {
        return Ok(());
    }
    delete_beside(store, step)?;
    // Last, so that what is left of a step always says that it is deleted.
    delete(store, &deleted_key(step))
}

/// Deletes what lies beside the attempts of a step that is not committed: its tags, and the like.
fn delete_beside(store: &dyn Store, step: u64) -> Result<(), Error> {
    let folder = step_folder(step);
    // Listed before the look for `COMMIT`: what belongs to a step that is saved anew meanwhile is not in it.
    let beside = store
        .list_files(&folder)
        .doing(|| format!("list `{folder}`"))?;
    if committed_attempt(store, step)?.is_some() {
        return Ok(());
    }
    let kept = [deleted_key(step), commit_key(step), hidden_key(step)];
    let mut others = beside.iter().filter(|meta| !kept.contains(&meta.key));
    others.try_for_each(|meta| delete(store, &meta.key))
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
