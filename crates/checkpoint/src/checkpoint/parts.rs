//! The parts of a checkpoint that were read: what was checked against the manifest does not change.

use crate::part::{Blocks, ReadPart};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The most parts that are kept: the checksums of a file of 10 GB take 0.6 MB.
const MAX_PARTS: usize = 64;

/// The first parts that were read, by writer.
#[derive(Debug, Default)]
pub(super) struct Parts(Mutex<BTreeMap<usize, Arc<(ReadPart, Blocks)>>>);

impl Parts {
    /// The part of `writer`, if it was read.
    pub(super) fn get(&self, writer: usize) -> Option<Arc<(ReadPart, Blocks)>> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.get(&writer).cloned()
    }

    /// Keeps a part, if there is room.
    pub(super) fn keep(&self, writer: usize, part: (ReadPart, Blocks)) -> Arc<(ReadPart, Blocks)> {
        let part = Arc::new(part);
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.len() < MAX_PARTS {
            parts.insert(writer, part.clone());
        }
        part
    }
}
