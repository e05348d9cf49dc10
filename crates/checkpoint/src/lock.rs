//! The lock of a step: who removes its manifest holds it, so that two never do that at the same time.
//!
//! A save does not take it. It is an object beside the step, created by one, that says which attempts are to be removed: if its holder dies,
//! whoever comes next knows which of two manifests was replaced by the other. `crates/protocol` shows what goes wrong without it.

use crate::Error;
use crate::error::StoreContext;
use crate::names::lock_key;
use cairn_store::{Error as StoreError, ObjectMeta, PutMode, Store};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// For how long somebody may be at a step, unless another age is given for what is abandoned.
pub(crate) const HELD_FOR: Duration = Duration::from_secs(3600);

/// The lock of a step, held. It is not given back when this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct StepLock {
    key: String,
    pub(crate) step: u64,
    /// What its holder, and those before it that died, are to remove.
    pub(crate) wanted: BTreeSet<String>,
}

impl StepLock {
    /// Takes the lock to remove `attempt`; none if somebody else is at the step. `is_stuck` if its holder is known to be dead.
    pub(crate) fn take(
        store: &dyn Store,
        step: u64,
        attempt: Option<&str>,
        is_stuck: bool,
    ) -> Result<Option<Self>, Error> {
        let key = lock_key(step);
        let mut wanted: BTreeSet<String> = attempt.map(str::to_owned).into_iter().collect();
        let put = |wanted: &BTreeSet<String>, mode| {
            let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
            store.put(&key, names.join("\n").as_bytes(), mode)
        };
        match put(&wanted, PutMode::Create) {
            Err(StoreError::AlreadyExists { .. }) => {}
            result => {
                result.doing(|| format!("create `{key}`"))?;
                return Ok(Some(Self { key, step, wanted }));
            }
        }
        if !is_stuck {
            return Ok(None);
        }
        wanted.extend(wanted_by(store, &key)?);
        let taken = put(&wanted, PutMode::Replace);
        taken.doing(|| format!("take `{key}` over"))?;
        Ok(Some(Self { key, step, wanted }))
    }

    /// Gives it back if something failed, so that the next one need not wait until it is old.
    pub(crate) fn or_release<T>(
        self,
        store: &dyn Store,
        result: Result<T, Error>,
    ) -> Result<(Self, T), Error> {
        match result {
            Ok(value) => Ok((self, value)),
            Err(error) => {
                if let Err(error) = self.release(store) {
                    tracing::debug!(%error, "the lock of a step was not given back");
                }
                Err(error)
            }
        }
    }

    pub(crate) fn release(self, store: &dyn Store) -> Result<(), Error> {
        let key = &self.key;
        store.delete(key).doing(|| format!("delete `{key}`"))
    }
}

/// The lock of a step, if somebody holds it.
pub(crate) fn held(store: &dyn Store, step: u64) -> Result<Option<ObjectMeta>, Error> {
    let key = lock_key(step);
    store.head(&key).doing(|| format!("look for `{key}`"))
}

/// Whether who took a lock must be dead by now.
pub(crate) fn is_old(lock: Option<&ObjectMeta>, age: Duration, now: SystemTime) -> bool {
    lock.is_none_or(|lock| {
        now.duration_since(lock.modified)
            .is_ok_and(|old| old >= age)
    })
}

fn wanted_by(store: &dyn Store, key: &str) -> Result<Vec<String>, Error> {
    match store.get(key) {
        Err(StoreError::NotFound { .. }) => Ok(Vec::new()),
        found => {
            let bytes = found.doing(|| format!("read `{key}`"))?;
            let text = String::from_utf8_lossy(&bytes);
            Ok(text.lines().map(str::to_owned).collect())
        }
    }
}
