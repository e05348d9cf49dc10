//! Ends the save of a writer that died: checksums, data, part, commit, as the writer would have.

use crate::server::Shared;
use crate::table::Orphaned;
use cairn_checkpoint::keeper::Orphan;
use cairn_checkpoint::{Error, chain};
use cairn_device::SharedMemory;
use cairn_store::ObjectReader;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Writes and commits an orphan.
///
/// # Errors
/// In words: what stopped it.
pub(crate) fn persist(shared: &Shared, orphaned: &Orphaned) -> Result<(), String> {
    let about = &orphaned.about;
    let store = cairn_store::open(&about.run).map_err(|error| chain(&error))?;
    let orphan = Orphan::new(about, &orphaned.draft).map_err(|error| chain(&error))?;
    let image = ImageReader {
        memory: orphaned.memory.clone(),
        len: about.len_bytes,
        key: format!("the image of writer {}", about.writer),
    };
    let part = match &orphaned.part {
        Some(part) => part.to_vec(),
        None => orphan.checksum(&image).map_err(|error| chain(&error))?,
    };
    shared.change(|table| table.sealed(orphaned.snapshot, part.clone()));
    let stored = orphan
        .write(&store, &image, &part)
        .map_err(|error| chain(&error))?;
    shared.change(|table| table.sealed(orphaned.snapshot, stored));
    let begun = Instant::now();
    loop {
        match orphan.commit(&store, PATIENCE) {
            Err(Error::WritersMissing { .. })
                if !shared.is_stopping() && begun.elapsed() < shared.options.commit_timeout => {}
            result => return result.map_err(|error| chain(&error)),
        }
    }
}
