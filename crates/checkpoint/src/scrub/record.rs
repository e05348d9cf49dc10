//! What is known of a pass, kept in the run so that it can be cut short.

use crate::Error;
use crate::clock::rfc3339;
use crate::error::StoreContext;
use cairn_store::{PutMode, Store};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// The object that holds the record of a run's scrubbing.
pub const SCRUB: &str = "SCRUB";

/// The version of records.
const RECORD_VERSION: u64 = 1;

/// The most findings that are kept of a step.
const MAX_FINDINGS: usize = 256;

/// What a pass has found so far, or what the last one found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    cairn: u64,
    kind: String,
    /// When the pass began: RFC 3339, UTC.
    pub started: String,
    /// When it was over; `None` while it is not.
    pub finished: Option<String>,
    /// Where it goes on, if it was cut short.
    pub position: Option<Position>,
    /// The steps looked at to their end.
    pub steps: u64,
    /// The data files looked at to their end.
    pub files: u64,
    /// The bytes whose checksums were compared.
    pub checked_bytes: u64,
    /// What is wrong, by step.
    pub damage: BTreeMap<u64, Vec<String>>,
}

/// The next byte of a pass.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// The step.
    pub step: u64,
    /// The attempt that held it.
    pub attempt: String,
    /// The writer whose file it is in.
    pub writer: usize,
    /// The byte of the file; a multiple of the length of a block.
    pub offset: u64,
}

impl Default for Record {
    fn default() -> Self {
        Self::begin()
    }
}

impl Record {
    /// A pass that begins now.
    pub(super) fn begin() -> Self {
        Self {
            cairn: RECORD_VERSION,
            kind: "scrub".into(),
            started: rfc3339(SystemTime::now()),
            finished: None,
            position: None,
            steps: 0,
            files: 0,
            checked_bytes: 0,
            damage: BTreeMap::new(),
        }
    }

    /// Whether the pass is over.
    pub fn is_over(&self) -> bool {
        self.finished.is_some()
    }

    /// The pass to go on with: the one that was cut short, or a new one. One that cannot be read is begun anew.
    pub(super) fn read(store: &dyn Store) -> Result<Self, Error> {
        let bytes = match store.get(SCRUB) {
            Err(cairn_store::Error::NotFound { .. }) => return Ok(Self::begin()),
            result => result.doing(|| format!("read `{SCRUB}`"))?,
        };
        let found = serde_json::from_slice::<Self>(&bytes).ok();
        let usable = found.filter(|record| {
            let block = crate::checksum::BLOCK_BYTES as u64;
            let aligned = |position: &Position| position.offset.is_multiple_of(block);
            record.cairn == RECORD_VERSION
                && !record.is_over()
                && record.position.as_ref().is_none_or(aligned)
        });
        Ok(usable.unwrap_or_else(Self::begin))
    }

    pub(super) fn write(&self, store: &dyn Store) -> Result<(), Error> {
        let bytes = serde_json::to_vec(self).expect("a record is JSON");
        let put = store.put(SCRUB, &bytes, PutMode::Replace);
        put.doing(|| format!("write `{SCRUB}`"))
    }

    pub(super) fn end(&mut self) {
        self.position = None;
        self.finished = Some(rfc3339(SystemTime::now()));
    }

    pub(super) fn add(&mut self, step: u64, finding: String) {
        let findings = self.damage.entry(step).or_default();
        if findings.len() < MAX_FINDINGS && !findings.contains(&finding) {
            findings.push(finding);
        }
    }
}
