//! A file that is put together from the blocks of several.

use super::map::BlockMap;
use crate::checksum::BLOCK_BYTES;
use cairn_store::{Error, ObjectReader};
use std::sync::Arc;

/// Where the bytes of a file that is put together really lie.
#[derive(Debug)]
pub struct Origins {
    /// The key of each file, the writer's own first.
    files: Vec<String>,
    map: BlockMap,
}

impl Origins {
    pub(crate) fn new(files: Vec<String>, map: BlockMap) -> Self {
        Self { files, map }
    }

    /// The file that really holds the byte at `offset`.
    pub fn file_at(&self, offset: u64) -> Option<&str> {
        let (place, _) = self.map.find(offset / BLOCK_BYTES as u64)?;
        self.files.get(place.file).map(String::as_str)
    }
}

/// Reads the image of a file whose blocks lie in several.
pub(crate) struct Joined {
    len: u64,
    origins: Arc<Origins>,
    /// One for each file; `None` if nothing lies in it.
    readers: Vec<Option<Box<dyn ObjectReader>>>,
}

impl Joined {
    pub(crate) fn new(
        len: u64,
        origins: Arc<Origins>,
        readers: Vec<Option<Box<dyn ObjectReader>>>,
    ) -> Self {
        Self {
            len,
            origins,
            readers,
        }
    }
}

impl ObjectReader for Joined {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let (wanted, left) = (buffer.len() as u64, self.len.saturating_sub(offset));
        let truncated = || Error::Truncated {
            key: self.origins.files.first().cloned().unwrap_or_default(),
            offset,
            wanted,
            got: left,
        };
        if wanted > left {
            return Err(truncated());
        }
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let found = self.origins.map.find(at / BLOCK);
            let (place, blocks) = found.ok_or_else(truncated)?;
            let inside = at % BLOCK;
            let run = blocks.saturating_mul(BLOCK) - inside;
            let run = usize::try_from(run).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(run.min(rest.len()));
            let reader = self.readers.get(place.file).and_then(Option::as_ref);
            let from = place.block.saturating_mul(BLOCK).saturating_add(inside);
            reader.ok_or_else(truncated)?.read_at(from, now)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// That of the files, which lie in one store.
    fn gap_bytes(&self) -> u64 {
        let gaps = self.readers.iter().flatten();
        gaps.map(|reader| reader.gap_bytes()).max().unwrap_or(0)
    }
}
