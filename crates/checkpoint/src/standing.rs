//! Which attempt of a step stands: the one that `COMMIT` names, or `HIDDEN` while a pruning makes sure that the step may go.
//!
//! ```text
//! COMMIT ──hide──▶ HIDDEN ──confirm──▶ DELETED ──files, then it──▶ nothing
//!    ▲               │
//!    └────restore────┘      it was saved anew or tagged after the pruning was planned
//! ```
//!
//! Until its deletion is confirmed, a step is committed for everybody: a pruning that dies in between has taken nothing away. Each move is
//! a rename, made under the lock of the step ([`crate::lock`]): what is confirmed is what was compared. `crates/protocol` is this file as a
//! model, and visits every order in which its moves can meet those of saves.

use crate::Error;
use crate::error::StoreContext;
use crate::lock::StepLock;
use crate::manifest::Manifest;
use crate::names::{AttemptKeys, commit_key, deleted_key, hidden_key};
use cairn_store::{Error as StoreError, PutMode, Store};
use std::collections::BTreeSet;

/// The manifest of the attempt that stands, as it is stored.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) key: String,
    pub(crate) bytes: Vec<u8>,
}

impl Standing {
    /// Reads it; `None` if the step is not committed.
    pub(crate) fn read(store: &dyn Store, step: u64) -> Result<Option<Self>, Error> {
        for key in places(step) {
            match store.get(&key) {
                Err(StoreError::NotFound { .. }) => {}
                result => {
                    let bytes = result.doing(|| format!("read `{key}`"))?;
                    return Ok(Some(Self { key, bytes }));
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn manifest(&self) -> Result<Manifest, Error> {
        Manifest::decode(&self.key, &self.bytes)
    }
}

/// Whether some attempt of `step` stands.
pub(crate) fn stands(store: &dyn Store, step: u64) -> Result<bool, Error> {
    for key in places(step) {
        let head = store.head(&key).doing(|| format!("look for `{key}`"))?;
        if head.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where to look, in this order: what is not hidden any more at the second look may have come back since the first.
fn places(step: u64) -> [String; 3] {
    [commit_key(step), hidden_key(step), commit_key(step)]
}

/// The attempt that stands.
pub(crate) fn committed_attempt(store: &dyn Store, step: u64) -> Result<Option<String>, Error> {
    let standing = Standing::read(store, step)?;
    let manifest = standing.map(|standing| standing.manifest()).transpose()?;
    Ok(manifest.map(|manifest| manifest.attempt))
}

/// The attempt that a step's `HIDDEN` names.
pub(crate) fn hidden_attempt(store: &dyn Store, step: u64) -> Result<Option<String>, Error> {
    attempt_at(store, &hidden_key(step))
}

/// The attempt that a step's `DELETED` names: it was committed, and its files are about to go.
pub(crate) fn deleted_attempt(store: &dyn Store, step: u64) -> Result<Option<String>, Error> {
    attempt_at(store, &deleted_key(step))
}

fn attempt_at(store: &dyn Store, key: &str) -> Result<Option<String>, Error> {
    Ok(manifest_at(store, key)?.map(|manifest| manifest.attempt))
}

fn manifest_at(store: &dyn Store, key: &str) -> Result<Option<Manifest>, Error> {
    let bytes = match store.get(key) {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        result => result.doing(|| format!("read `{key}`"))?,
    };
    Manifest::decode(key, &bytes).map(Some)
}

/// What became of a step that was to be hidden.
#[derive(Debug)]
pub(crate) enum Hidden {
    /// It is hidden, and may go. Its manifest, as it is stored.
    Here(Vec<u8>),
    /// It stays, or somebody else is at it.
    Spared,
    /// It was not committed any more.
    Gone,
}

/// Takes a step aside and asks `may_go` of what was found. If it may not, it comes back. `wanted` are the attempts that are to be removed.
///
/// Nothing is hidden over what is hidden already: it may be good, and its manifest is nowhere else.
///
/// # Crash safety
/// The step is committed before and after, and in between.
pub(crate) fn hide(
    store: &dyn Store,
    step: u64,
    wanted: &BTreeSet<String>,
    may_go: impl FnOnce(&Manifest) -> Result<bool, Error>,
) -> Result<Hidden, Error> {
    let (commit, hidden) = (commit_key(step), hidden_key(step));
    match store.rename(&commit, &hidden, PutMode::Create) {
        Err(StoreError::NotFound { .. }) => {
            let head = store.head(&hidden);
            let head = head.doing(|| format!("look for `{hidden}`"))?;
            return Ok(head.map_or(Hidden::Gone, |_| Hidden::Spared));
        }
        Err(StoreError::AlreadyExists { .. }) => return Ok(Hidden::Spared),
        result => result.doing(|| format!("hide `{commit}`"))?,
    }
    let bytes = match store.get(&hidden) {
        // Somebody else decided.
        Err(StoreError::NotFound { .. }) => return Ok(Hidden::Spared),
        result => result.doing(|| format!("read `{hidden}`"))?,
    };
    match Manifest::decode(&hidden, &bytes).and_then(|manifest| may_go(&manifest)) {
        Ok(true) => Ok(Hidden::Here(bytes)),
        decided => {
            restore(store, step, wanted)?;
            decided.map(|_| Hidden::Spared)
        }
    }
}

/// Brings a hidden step back, if it is still there. Where another attempt is committed by now, it is decided which of the two stands.
pub(crate) fn restore(
    store: &dyn Store,
    step: u64,
    wanted: &BTreeSet<String>,
) -> Result<(), Error> {
    let (commit, hidden) = (commit_key(step), hidden_key(step));
    match store.rename(&hidden, &commit, PutMode::Create) {
        Err(StoreError::NotFound { .. }) => Ok(()),
        Err(StoreError::AlreadyExists { .. }) => decide(store, step, wanted),
        result => result.doing(|| format!("bring back `{commit}`")),
    }
}

/// Decides between what is hidden and what came under `COMMIT` meanwhile.
///
/// Usually the step was saved anew, and what is hidden goes. But an attempt without files was deleted, and one that was to be removed was
/// replaced by what is hidden: a writer who stood still has put its `COMMIT` once more.
fn decide(store: &dyn Store, step: u64, wanted: &BTreeSet<String>) -> Result<(), Error> {
    let (commit, hidden) = (commit_key(step), hidden_key(step));
    let (Ok(Some(here)), Ok(Some(aside))) =
        (manifest_at(store, &commit), manifest_at(store, &hidden))
    else {
        // One of them is damaged: both are evidence. Or somebody else decided.
        return Ok(());
    };
    if here.attempt == aside.attempt {
        // In a bucket a rename is two moves, and whoever made the first one died.
        return store.delete(&hidden).doing(|| format!("delete `{hidden}`"));
    }
    let is_stale = wanted.contains(&here.attempt) && !wanted.contains(&aside.attempt);
    if is_stale || !has_parts(store, &here)? {
        let back = store.rename(&hidden, &commit, PutMode::Replace);
        return back.doing(|| format!("bring back `{commit}`"));
    }
    confirm(store, step).map(drop)
}

/// Whether the parts of an attempt are there. A pruning that deletes it takes them.
pub(crate) fn has_parts(store: &dyn Store, manifest: &Manifest) -> Result<bool, Error> {
    let keys = AttemptKeys::new(manifest.step, &manifest.attempt);
    for writer in 0..manifest.writers() {
        let part = keys.part(writer);
        let head = store.head(&part);
        if head.doing(|| format!("look for `{part}`"))?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Says that a hidden step is deleted: from here on it is not committed. Whether it was still hidden.
pub(crate) fn confirm(store: &dyn Store, step: u64) -> Result<bool, Error> {
    let (hidden, deleted) = (hidden_key(step), deleted_key(step));
    match store.rename(&hidden, &deleted, PutMode::Replace) {
        Err(StoreError::NotFound { .. }) => Ok(false),
        result => {
            let confirmed = result.doing(|| format!("write `{deleted}`"));
            confirmed.map(|()| true)
        }
    }
}

/// As [`confirm`], for the manifest `bytes`, which was compared. If something else was hidden meanwhile, that comes back: a pruning of an
/// older version may be at the step, which takes no lock.
pub(crate) fn confirm_compared(store: &dyn Store, step: u64, bytes: &[u8]) -> Result<bool, Error> {
    if !confirm(store, step)? {
        return Ok(false);
    }
    let (commit, deleted) = (commit_key(step), deleted_key(step));
    let moved = store.get(&deleted);
    if moved.doing(|| format!("read `{deleted}`"))? == bytes {
        return Ok(true);
    }
    match store.rename(&deleted, &commit, PutMode::Create) {
        Err(StoreError::AlreadyExists { .. } | StoreError::NotFound { .. }) => {}
        back => back.doing(|| format!("bring back `{commit}`"))?,
    }
    Ok(false)
}

/// Removes the manifest of `attempt` from a step, whose lock is held: it is moved aside, compared and only then deleted.
///
/// # Crash safety
/// The step is committed until it is sure that it may go.
pub(crate) fn remove(
    store: &dyn Store,
    lock: &StepLock,
    attempt: &str,
    may_go: impl FnOnce(&Manifest) -> Result<bool, Error>,
) -> Result<Removed, Error> {
    let step = lock.step;
    let head = store.head(&hidden_key(step));
    if head
        .doing(|| format!("look for `{}`", hidden_key(step)))?
        .is_some()
    {
        restore(store, step, &lock.wanted)?;
    }
    match manifest_at(store, &commit_key(step))? {
        Some(found) if found.attempt != attempt => return Ok(Removed::Spared),
        Some(_) => {}
        // Somebody else did, unless two of them are damaged.
        None => {
            return Ok(match stands(store, step)? {
                true => Removed::Spared,
                false => Removed::Gone,
            });
        }
    }
    let is_it = |found: &Manifest| Ok(found.attempt == attempt && may_go(found)?);
    let bytes = match hide(store, step, &lock.wanted, is_it)? {
        Hidden::Here(bytes) => bytes,
        Hidden::Spared => return Ok(Removed::Spared),
        Hidden::Gone => return Ok(Removed::Gone),
    };
    Ok(match confirm_compared(store, step, &bytes)? {
        true => Removed::Here(bytes),
        false => Removed::Spared,
    })
}

/// What became of a manifest that was to be removed.
#[derive(Debug)]
pub(crate) enum Removed {
    /// It is under `DELETED` now, and this is it.
    Here(Vec<u8>),
    Spared,
    Gone,
}
