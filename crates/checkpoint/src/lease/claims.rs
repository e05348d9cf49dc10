//! What a run says about who has it.

use super::process::{self, Process};
use crate::Error;
use crate::error::{StoreContext, chain};
use cairn_store::{Error as StoreError, Store};
use serde::{Deserialize, Serialize};

/// The folder of a run that says who has it.
const FOLDER: &str = "lease";

/// Who has a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) host: String,
    /// Which process it is, if its system tells.
    pub(super) process: Option<Process>,
    /// The launch it belongs to.
    pub(super) launch: String,
}

/// A sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Beat {
    pub(super) counter: u64,
    /// Whether the trainer has left the run.
    pub(super) over: bool,
}

impl Claim {
    pub(super) fn own(launch: &str) -> Self {
        Self {
            host: process::host(),
            process: Process::own(),
            launch: launch.to_string(),
        }
    }

    /// `process 12 on `host``.
    pub(super) fn text(&self) -> String {
        match &self.process {
            Some(process) => format!("process {} on `{}`", process.pid, self.host),
            None => format!("a process on `{}`", self.host),
        }
    }
}

pub(super) fn claim_key(number: u64) -> String {
    format!("{FOLDER}/{number:08}")
}

pub(super) fn beat_key(number: u64) -> String {
    format!("{FOLDER}/{number:08}.beat")
}

/// The numbers of all claims, ascending.
pub(super) fn numbers(store: &dyn Store) -> Result<Vec<u64>, Error> {
    let listing = store.list_files(FOLDER);
    let listing = listing.doing(|| format!("list `{FOLDER}`"))?;
    let mut numbers: Vec<u64> = listing
        .iter()
        .filter_map(|meta| meta.key.rsplit('/').next()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// What an object says; `None` if there is none, or it is not one of ours.
pub(super) fn read<T: for<'a> Deserialize<'a>>(
    store: &dyn Store,
    key: &str,
) -> Result<Option<T>, Error> {
    match store.get(key) {
        Err(StoreError::NotFound { .. }) => Ok(None),
        bytes => {
            let bytes = bytes.doing(|| format!("read `{key}`"))?;
            Ok(serde_json::from_slice(&bytes).ok())
        }
    }
}

pub(super) fn bytes_of(value: &impl Serialize) -> Vec<u8> {
    // Texts and numbers can always be written.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Removes the claims before `number`, whose holders are over or know that they lost the run by the number alone.
pub(super) fn clear(store: &dyn Store, number: u64) {
    let Ok(listing) = store.list_files(FOLDER) else {
        return;
    };
    for key in listing.into_iter().map(|meta| meta.key) {
        let name = key.rsplit('/').next().unwrap_or_default();
        let old = name.split('.').next().unwrap_or_default().parse::<u64>();
        if old.is_ok_and(|old| old < number)
            && let Err(error) = store.delete(&key)
        {
            tracing::debug!(key, error = %chain(&error), "an old claim stays");
        }
    }
}
