//! The deletion of steps, in two moves that each leave a run that can be read.

use super::plan::PrunePlan;
use crate::Error;
use crate::delta::References;
use crate::error::StoreContext;
use crate::lock::StepLock;
use crate::manifest::Manifest;
use crate::names::{
    AttemptKeys, commit_key, deleted_key, hidden_key, is_pin, lock_key, parse_step_folder,
    step_folder,
};
use crate::standing::{
    self, Removed, Standing, committed_attempt, deleted_attempt, has_parts, restore,
};
use crate::tags::tags_of;
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
    let store = store
        .tiers()
        .map_or(store, |tiers| tiers.durable().as_ref());
    let (mut spared, mut gone) = (Vec::new(), Vec::new());
    for step in &plan.hidden {
        if let Some(lock) = lock(store, plan, *step, None)? {
            let restored = restore(store, *step, &lock.wanted);
            lock.or_release(store, restored)?.0.release(store)?;
        }
    }
    for (step, attempt) in &plan.remove {
        let Some(lock) = lock(store, plan, *step, Some(attempt))? else {
            spared.push(*step);
            continue;
        };
        let removed = remove(store, &lock, attempt);
        let (lock, is_removed) = lock.or_release(store, removed)?;
        if !is_removed {
            spared.push(*step);
        } else if plan.grace.is_zero() {
            gone.extend(going(store, lock)?);
            continue;
        }
        lock.release(store)?;
    }
    for step in plan.purge.iter().chain(&plan.beside) {
        if let Some(lock) = lock(store, plan, *step, None)? {
            gone.extend(going(store, lock)?);
        }
    }
    let folders = gone.iter().map(|(_, folder)| folder);
    for folder in folders.chain(&plan.leftovers) {
        delete_pins(store, folder)?;
    }
    // Not those of the plan, which may be old, and not before each `COMMIT` that goes is gone.
    let references = References::read(store, &|_| false)?;
    for (lock, folder) in gone {
        let erased = erase(store, lock.step, &folder, &references);
        lock.or_release(store, erased)?.0.release(store)?;
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

/// The lock of a step; none if another process is at it.
fn lock(
    store: &dyn Store,
    plan: &PrunePlan,
    step: u64,
    attempt: Option<&String>,
) -> Result<Option<StepLock>, Error> {
    let is_stuck = plan.stuck.contains(&step);
    StepLock::take(store, step, attempt.map(String::as_str), is_stuck)
}

/// Takes the step away from readers. Whether it did: a step that is not the planned one, or has a tag, comes back.
fn remove(store: &dyn Store, lock: &StepLock, attempt: &str) -> Result<bool, Error> {
    // Tags are looked for when it is hidden: whoever tags a step looks for its `COMMIT` afterwards, so one of the two sees the other.
    let has_no_tag = |manifest: &Manifest| Ok(tags_of(store, manifest)?.is_empty());
    let bytes = match standing::remove(store, lock, attempt, has_no_tag)? {
        Removed::Here(bytes) => bytes,
        Removed::Spared => return Ok(false),
        // Somebody else did.
        Removed::Gone => return Ok(true),
    };
    // Put again, for the time of it: the grace period begins now.
    let deleted = deleted_key(lock.step);
    let put = store.put(&deleted, &bytes, PutMode::Replace);
    put.doing(|| format!("write `{deleted}`")).map(|()| true)
}

/// Takes an attempt back that was committed when its files had gone, or were going. A tag keeps it. Whoever holds the lock of the step will
/// see to it otherwise.
pub(crate) fn take_back(store: &dyn Store, step: u64, attempt: &str) -> Result<(), Error> {
    let Some(lock) = StepLock::take(store, step, Some(attempt), false)? else {
        return Ok(());
    };
    let has_no_tag = |manifest: &Manifest| Ok(tags_of(store, manifest)?.is_empty());
    let removed = standing::remove(store, &lock, attempt, has_no_tag);
    lock.or_release(store, removed)?.0.release(store)
}

/// The folder of a deleted step, whose files go, under its lock. Those of a step that came back stay: in a bucket a rename is two moves, and
/// whoever brought it back may have made only the first. But a writer who stood still may have put `COMMIT` when files were gone already.
fn going(store: &dyn Store, lock: StepLock) -> Result<Option<(StepLock, String)>, Error> {
    let folder = folder_that_goes(store, &lock);
    match lock.or_release(store, folder)? {
        (lock, Some(folder)) => Ok(Some((lock, folder))),
        (lock, None) => lock.release(store).map(|()| None),
    }
}

fn folder_that_goes(store: &dyn Store, lock: &StepLock) -> Result<Option<String>, Error> {
    let step = lock.step;
    let Some(attempt) = deleted_attempt(store, step)? else {
        return Ok(None);
    };
    let standing = Standing::read(store, step)?;
    let manifest = standing.map(|standing| standing.manifest()).transpose()?;
    if let Some(manifest) = manifest.filter(|manifest| manifest.attempt == attempt) {
        if has_parts(store, &manifest)? {
            return delete(store, &deleted_key(step)).map(|()| None);
        }
        standing::remove(store, lock, &attempt, |_| Ok(true))?;
    }
    Ok(Some(AttemptKeys::new(step, &attempt).folder))
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
    // The lock of a step that is deleted is given back by its holder; without one it is a leftover.
    let is_locked = beside.iter().any(|meta| meta.key == kept[0]);
    let lock = lock_key(step);
    let mut others = beside
        .iter()
        .filter(|meta| !kept.contains(&meta.key) && !(is_locked && meta.key == lock));
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
