//! The files that hold the data of a writer: one, or those that its blocks are spread over.

use super::Checkpoint;
use crate::Error;
use crate::checksum::BLOCK_BYTES;
use crate::copies::{Checksums, NearestGood, is_absent, mend};
use crate::delta::{Joined, Origins};
use crate::error::chain;
use crate::names::AttemptKeys;
use crate::packed::{self, is_packed};
use crate::part::{Blocks, FileEntry, ReadPart};
use crate::source::SourceFile;
use cairn_store::{ObjectReader, Tiered};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

/// A file that holds data of a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredFile {
    pub(crate) key: String,
    /// Its length, or, if it is a file that the step only refers to, the least it must have.
    pub(crate) len_bytes: u64,
    /// The length of the object that it is packed in, if it is; of a file that the step only refers to, nothing is known of that.
    packed_bytes: Option<u64>,
    /// The step that refers to it, if it is not the writer's own.
    by: Option<u64>,
}

impl StoredFile {
    /// The files that hold the data of a writer of an attempt at `step`, its own first.
    pub(crate) fn all(
        step: u64,
        keys: &AttemptKeys,
        file: &FileEntry,
        blocks: &Blocks,
    ) -> Vec<Self> {
        let own = Self {
            key: format!("{}/{}", keys.folder, file.name),
            len_bytes: file.own_bytes(),
            packed_bytes: file.packed.as_ref().map(|packed| packed.stored_bytes),
            by: None,
        };
        let bases = file.delta.iter().flat_map(|delta| &delta.bases);
        let bases = bases.enumerate().map(|(index, key)| {
            let map = blocks.map.as_ref();
            let count = map.map_or(0, |map| map.blocks_of(index + 1));
            // The last block of a plain file may be a short one.
            let before = count.saturating_sub(1).saturating_mul(BLOCK_BYTES as u64);
            Self {
                key: key.clone(),
                len_bytes: before.saturating_add(1),
                packed_bytes: None,
                by: Some(step),
            }
        });
        [own].into_iter().chain(bases).collect()
    }

    /// Whether there is such a file at all: a delta without anything new has none.
    pub(crate) fn exists(&self) -> bool {
        self.len_bytes > 0 || self.by.is_some()
    }

    /// Whether a file of this length can be it.
    pub(crate) fn fits(&self, len_bytes: u64) -> bool {
        match self.by {
            None => len_bytes == self.len_bytes,
            Some(_) => len_bytes >= self.len_bytes,
        }
    }

    /// Makes sure that an open file can be it.
    pub(crate) fn check(&self, file: &dyn ObjectReader) -> Result<(), Error> {
        match self.fits(file.len()) {
            true => Ok(()),
            false => Err(self.misfit(Some(file.len()))),
        }
    }

    /// Compares the lengths that copies of its object have with what they should be: one good copy is enough.
    pub(crate) fn check_objects(&self, found: &[u64]) -> Result<(), Error> {
        let fits = |len: &u64| match (is_packed(&self.key), self.packed_bytes) {
            (false, _) => self.fits(*len),
            (true, Some(stored)) => *len == stored,
            // What it holds is seen when it is opened.
            (true, None) => true,
        };
        match (found.iter().any(fits), self.packed_bytes, found.first()) {
            (true, ..) => Ok(()),
            (false, Some(stored), Some(len)) => {
                let reason = format!("it has {len} bytes, {stored} were written");
                Err(Error::damaged(&self.key, reason))
            }
            (false, ..) => Err(self.misfit(found.first().copied())),
        }
    }

    /// The error for a file of the wrong length; `None`: it is not there.
    pub(crate) fn misfit(&self, found: Option<u64>) -> Error {
        let reason = match (found, self.by) {
            (Some(len), None) => format!("it has {len} bytes, {} were written", self.len_bytes),
            (Some(len), Some(step)) => {
                format!("it has only {len} bytes, and step {step} refers to blocks behind them")
            }
            (None, None) => "it is missing".to_string(),
            (None, Some(step)) => format!("it is missing, and step {step} refers to it"),
        };
        Error::damaged(&self.key, reason)
    }
}

impl Checkpoint {
    /// The files that hold the data of a writer, its own first.
    pub(crate) fn stored_files(&self, file: &FileEntry, blocks: &Blocks) -> Vec<StoredFile> {
        StoredFile::all(self.step(), &self.keys, file, blocks)
    }

    /// Opens the data of a writer as one file.
    pub(super) fn open_stored(
        &self,
        writer: usize,
        entry: &FileEntry,
        blocks: Blocks,
    ) -> Result<SourceFile, Error> {
        let files = self.stored_files(entry, &blocks);
        let mut readers = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let checksums = || Checksums::of(entry, &blocks, number);
            let damaged = || match number {
                0 => self.damage(writer),
                // Who loads the step it belongs to has it mended.
                _ => Arc::default(),
            };
            let open = || self.reader(file, checksums, damaged);
            readers.push(file.exists().then(open).transpose()?);
        }
        let key = files[0].key.clone();
        let (reader, origins) = match blocks.map {
            None => (readers.swap_remove(0), None),
            Some(map) => {
                let keys = files.into_iter().map(|file| file.key).collect();
                let origins = Arc::new(Origins::new(keys, map));
                let joined = Joined::new(entry.len_bytes, origins.clone(), readers);
                (
                    Some(Box::new(joined) as Box<dyn ObjectReader>),
                    Some(origins),
                )
            }
        };
        Ok(SourceFile {
            reader: reader.ok_or_else(|| Error::damaged(&key, "it has no bytes"))?,
            key,
            data_start: entry.data_start,
            crcs: Some(blocks.crcs),
            origins,
        })
    }

    fn reader(
        &self,
        file: &StoredFile,
        checksums: impl FnOnce() -> Checksums,
        damaged: impl FnOnce() -> Arc<AtomicBool>,
    ) -> Result<Box<dyn ObjectReader>, Error> {
        if let Some(tiers) = self.store.tiers() {
            let nearest = NearestGood::open(tiers, file, checksums(), damaged())?;
            return Ok(Box::new(nearest));
        }
        let key = &file.key;
        match packed::open(self.store.as_ref(), key) {
            Ok(reader) => file.check(reader.as_ref()).map(|()| reader),
            Err(error) if is_absent(&error) && file.by.is_some() => Err(file.misfit(None)),
            Err(error) => Err(error),
        }
    }

    /// Whether the fast tier's copy of a writer's own file turned out to be damaged.
    fn damage(&self, writer: usize) -> Arc<AtomicBool> {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.entry(writer).or_default().clone()
    }

    /// Writes the files of the fast tier anew that turned out to be damaged, and returns their keys.
    pub(super) fn mend_files(&self, tiers: &Tiered) -> Vec<String> {
        let damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        let found = damaged
            .iter()
            .filter(|(_, damaged)| damaged.load(Ordering::Relaxed));
        let mut mended = Vec::new();
        for (writer, damaged) in found {
            match self.mend_file(tiers, *writer) {
                Ok(key) => {
                    damaged.store(false, Ordering::Relaxed);
                    mended.extend(key);
                }
                Err(error) => {
                    tracing::warn!(writer, error = %chain(&error), "not mended on the fast tier");
                }
            }
        }
        mended
    }

    fn mend_file(&self, tiers: &Tiered, writer: usize) -> Result<Option<String>, Error> {
        let part = self.part(writer)?;
        let (ReadPart { part, .. }, blocks) = part.as_ref();
        let Some(entry) = &part.file else {
            return Ok(None);
        };
        let own = self.stored_files(entry, blocks).swap_remove(0);
        let checksums = Checksums::of(entry, blocks, 0);
        mend(&NearestGood::open(tiers, &own, checksums, Arc::default())?)?;
        Ok(Some(own.key))
    }
}
