//! The files that hold the data of a writer: one, or those that its blocks are spread over.

use super::Checkpoint;
use crate::Error;
use crate::checksum::BLOCK_BYTES;
use crate::delta::{Joined, Origins};
use crate::error::StoreContext;
use crate::part::{Blocks, FileEntry};
use crate::source::SourceFile;
use cairn_store::ObjectReader;
use std::sync::Arc;

/// A file that holds data of a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredFile {
    pub(crate) key: String,
    /// Its length, or, if it is a file that the step only refers to, the least it must have.
    len_bytes: u64,
    own: bool,
}

impl StoredFile {
    /// Whether there is such a file at all: a delta without anything new has none.
    pub(crate) fn exists(&self) -> bool {
        self.len_bytes > 0 || !self.own
    }

    fn fits(&self, len_bytes: u64) -> bool {
        match self.own {
            true => len_bytes == self.len_bytes,
            false => len_bytes >= self.len_bytes,
        }
    }
}

impl Checkpoint {
    /// The files that hold the data of a writer, its own first.
    pub(crate) fn stored_files(&self, file: &FileEntry, blocks: &Blocks) -> Vec<StoredFile> {
        let own = StoredFile {
            key: format!("{}/{}", self.keys().folder, file.name),
            len_bytes: file.stored_bytes(),
            own: true,
        };
        let bases = file.delta.iter().flat_map(|delta| &delta.bases);
        let bases = bases.enumerate().map(|(index, key)| {
            let map = blocks.map.as_ref();
            let count = map.map_or(0, |map| map.blocks_of(index + 1));
            // The last block of a plain file may be a short one.
            let before = count.saturating_sub(1).saturating_mul(BLOCK_BYTES as u64);
            StoredFile {
                key: key.clone(),
                len_bytes: before.saturating_add(1),
                own: false,
            }
        });
        [own].into_iter().chain(bases).collect()
    }

    /// Compares the length that a file has with what it should be; `None`: it is not there.
    pub(crate) fn check_stored(&self, file: &StoredFile, len: Option<u64>) -> Result<(), Error> {
        let step = self.step();
        let reason = match (len, file.own) {
            (Some(len), _) if file.fits(len) => return Ok(()),
            (Some(len), true) => {
                format!("it has {len} bytes, {} were written", file.len_bytes)
            }
            (Some(len), false) => {
                format!("it has only {len} bytes, and step {step} refers to blocks behind them")
            }
            (None, true) => "it is missing".to_string(),
            (None, false) => format!("it is missing, and step {step} refers to it"),
        };
        Err(Error::damaged(&file.key, reason))
    }

    /// Opens the data of a writer as one file.
    pub(super) fn open_stored(
        &self,
        entry: &FileEntry,
        blocks: Blocks,
    ) -> Result<SourceFile, Error> {
        let files = self.stored_files(entry, &blocks);
        let key = files[0].key.clone();
        let (reader, origins) = match blocks.map {
            None => (self.reader(&files[0])?, None),
            Some(map) => {
                let open = |file: &StoredFile| file.exists().then(|| self.reader(file)).transpose();
                let readers = files.iter().map(open).collect::<Result<_, _>>()?;
                let keys = files.into_iter().map(|file| file.key).collect();
                let origins = Arc::new(Origins::new(keys, map));
                let joined = Joined::new(entry.len_bytes, origins.clone(), readers);
                (Box::new(joined) as Box<dyn ObjectReader>, Some(origins))
            }
        };
        Ok(SourceFile {
            key,
            reader,
            data_start: entry.data_start,
            crcs: Some(blocks.crcs),
            origins,
        })
    }

    fn reader(&self, file: &StoredFile) -> Result<Box<dyn ObjectReader>, Error> {
        let key = &file.key;
        match self.store().reader(key) {
            Ok(reader) => {
                self.check_stored(file, Some(reader.len()))?;
                Ok(reader)
            }
            Err(cairn_store::Error::NotFound { .. }) if !file.own => {
                Err(self.check_stored(file, None).expect_err("it is missing"))
            }
            result => result.doing(|| format!("open `{key}`")),
        }
    }
}
