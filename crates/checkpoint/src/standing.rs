//! Which attempt of a step stands: the one that `COMMIT` names, or `HIDDEN` while a pruning makes sure that the step may go.
//!
//! ```text
//! COMMIT ──hide──▶ HIDDEN ──confirm──▶ DELETED ──files, then it──▶ nothing
//!    ▲               │
//!    └────restore────┘      it was saved anew or tagged after the pruning was planned
//! ```
//!
//! Until its deletion is confirmed, a step is committed for everybody: a pruning that dies in between has taken nothing away. Each move is
//! a rename, so of two prunings that decide differently one finds nothing to move.

use crate::Error;
use crate::error::StoreContext;
use crate::manifest::{Brief, Manifest};
use crate::names::{commit_key, deleted_key, hidden_key};
use cairn_store::{Error as StoreError, PutMode, Store};

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

    /// The manifest without what it says of tensors.
    pub(crate) fn brief(&self) -> Result<Brief, Error> {
        Brief::decode(&self.key, &self.bytes)
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
    let brief = standing.map(|standing| standing.brief()).transpose()?;
    Ok(brief.map(|brief| brief.attempt))
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
    let bytes = match store.get(key) {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        result => result.doing(|| format!("read `{key}`"))?,
    };
    Ok(Some(Brief::decode(key, &bytes)?.attempt))
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

/// Takes a step aside and asks `may_go` of what was found. If it may not, it comes back.
///
/// # Crash safety
/// The step is committed before and after, and in between.
pub(crate) fn hide(
    store: &dyn Store,
    step: u64,
    may_go: impl FnOnce(&Brief) -> Result<bool, Error>,
) -> Result<Hidden, Error> {
    let (commit, hidden) = (commit_key(step), hidden_key(step));
    match store.rename(&commit, &hidden, PutMode::Replace) {
        Err(StoreError::NotFound { .. }) => {
            let head = store.head(&hidden);
            let head = head.doing(|| format!("look for `{hidden}`"))?;
            return Ok(head.map_or(Hidden::Gone, |_| Hidden::Spared));
        }
        result => result.doing(|| format!("hide `{commit}`"))?,
    }
    let bytes = match store.get(&hidden) {
        // Somebody else decided.
        Err(StoreError::NotFound { .. }) => return Ok(Hidden::Spared),
        result => result.doing(|| format!("read `{hidden}`"))?,
    };
    match Brief::decode(&hidden, &bytes).and_then(|found| may_go(&found)) {
        Ok(true) => Ok(Hidden::Here(bytes)),
        decided => {
            restore(store, step)?;
            decided.map(|_| Hidden::Spared)
        }
    }
}

/// Brings a hidden step back, unless it was saved anew meanwhile. Whether it was.
pub(crate) fn restore(store: &dyn Store, step: u64) -> Result<bool, Error> {
    let (commit, hidden) = (commit_key(step), hidden_key(step));
    match store.rename(&hidden, &commit, PutMode::Create) {
        Err(StoreError::AlreadyExists { .. }) => Ok(true),
        Err(StoreError::NotFound { .. }) => Ok(false),
        result => {
            let restored = result.doing(|| format!("bring back `{commit}`"));
            restored.map(|()| false)
        }
    }
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
