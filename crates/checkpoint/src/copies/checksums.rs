//! The checksums of the blocks of a file, as far as they are known.

use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::part::{Blocks, FileEntry};
use std::collections::HashMap;

/// The checksums of the blocks of a file, as far as they are known.
#[derive(Debug)]
pub(crate) struct Checksums {
    known: Known,
    /// The block that is the last one of the image, and how many of its bytes are. A delta fills it up.
    last: Option<(u64, usize)>,
}

#[derive(Debug)]
enum Known {
    /// Of every block.
    All(Vec<u32>),
    /// Of those that a delta has in it.
    Some(HashMap<u64, u32>),
}

impl Checksums {
    /// Those of file number `file` of a writer, of which 0 is its own.
    pub(crate) fn of(entry: &FileEntry, blocks: &Blocks, file: usize) -> Self {
        let Some(map) = &blocks.map else {
            let known = Known::All(blocks.crcs.clone());
            return Self { known, last: None };
        };
        let last = map.places().last().filter(|place| place.file == file);
        let len = usize::try_from(entry.len_bytes % BLOCK_BYTES as u64).unwrap_or(0);
        Self {
            known: Known::Some(map.crcs_of(file, &blocks.crcs)),
            last: last.filter(|_| len > 0).map(|place| (place.block, len)),
        }
    }

    /// None at all.
    pub(crate) fn unknown() -> Self {
        Self {
            known: Known::Some(HashMap::new()),
            last: None,
        }
    }

    /// Whether block number `number` may have these bytes.
    pub(crate) fn fit(&self, number: usize, block: &[u8]) -> bool {
        let number = number as u64;
        let crc = match &self.known {
            Known::All(crcs) => usize::try_from(number).ok().and_then(|n| crcs.get(n)),
            Known::Some(crcs) => crcs.get(&number),
        };
        let len = match self.last {
            Some((last, len)) if last == number => len.min(block.len()),
            _ => block.len(),
        };
        crc.is_none_or(|crc| *crc == crc32c(&block[..len]))
    }
}
