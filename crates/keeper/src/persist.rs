//! Ends the save of a writer that died: checksums, data, part, commit, as the writer would have.

use crate::table::{Failure, Orphaned, Prospect};
use cairn_checkpoint::keeper::Orphan;
use cairn_checkpoint::{Clock, Error, chain};
use cairn_device::SharedMemory;
use cairn_store::{ObjectReader, Store};
use std::sync::Arc;
use std::time::Duration;

/// How long the other writers are waited for before the keeper looks whether it should stop.
const PATIENCE: Duration = Duration::from_secs(1);

/// Memory, as an object to read.
#[derive(Debug)]
pub(crate) struct ImageReader {
    /// `None` for a writer that has no data file.
    pub(crate) memory: Option<Arc<SharedMemory>>,
    /// The length of the file in it.
    pub(crate) len: u64,
    pub(crate) key: String,
}

impl ObjectReader for ImageReader {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), cairn_store::Error> {
        let wanted = buffer.len() as u64;
        let there = self.len.saturating_sub(offset).min(wanted);
        let memory = self.memory.as_ref().filter(|_| there == wanted);
        let read = memory.and_then(|memory| memory.read_at(offset, buffer).ok());
        read.ok_or_else(|| cairn_store::Error::Truncated {
            key: self.key.clone(),
            offset,
            wanted,
            got: there,
        })
    }
}

/// What it takes to end a save.
pub(crate) struct Ending<'a> {
    /// Opens the run's store.
    pub(crate) store: &'a dyn Fn() -> Result<Arc<dyn Store>, cairn_store::Error>,
    pub(crate) clock: &'a Arc<dyn Clock>,
    /// How long the other writers are waited for.
    pub(crate) commit_timeout: Duration,
    pub(crate) is_stopping: &'a dyn Fn() -> bool,
    /// Hears of the part as soon as it is known, and when it is in the store.
    pub(crate) sealed: &'a dyn Fn(Vec<u8>),
}

impl Ending<'_> {
    /// Writes and commits an orphan.
    ///
    /// # Errors
    /// In words: what stopped it, and whether it may be otherwise another time.
    pub(crate) fn persist(&self, orphaned: &Orphaned) -> Result<(), Failure> {
        let about = &orphaned.about;
        let orphan = Orphan::new(about, &orphaned.draft).map_err(|error| failure(&error))?;
        let image = ImageReader {
            memory: orphaned.memory.clone(),
            len: about.len_bytes,
            key: format!("the image of writer {}", about.writer),
        };
        let part = match &orphaned.part {
            Some(part) => part.to_vec(),
            None => orphan.checksum(&image).map_err(|error| failure(&error))?,
        };
        // From here on it can be read, whether the store is there or not.
        (self.sealed)(part.clone());
        let store = (self.store)().map_err(|error| Failure {
            reason: chain(&error),
            prospect: Prospect::Open,
        })?;
        let written = orphan.write(&store, &image, &part);
        (self.sealed)(written.map_err(|error| failure(&error))?);
        let begun = self.clock.elapsed();
        loop {
            match orphan.commit(&store, self.clock, PATIENCE) {
                Err(Error::WritersMissing { .. })
                    if !(self.is_stopping)()
                        && self.clock.elapsed().saturating_sub(begun) < self.commit_timeout => {}
                result => return result.map_err(|error| failure(&error)),
            }
        }
    }
}

fn failure(error: &Error) -> Failure {
    let prospect = match error {
        Error::StepTaken { .. } => Prospect::Taken,
        Error::WriterFailed { .. } | Error::Skipped { .. } => Prospect::GivenUp,
        _ => Prospect::Open,
    };
    Failure {
        reason: chain(error),
        prospect,
    }
}
