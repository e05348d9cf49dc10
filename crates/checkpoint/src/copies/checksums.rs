//! The checksums of the blocks of a file, as far as they are known.

use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::delta::BlockMap;
use crate::part::{Blocks, FileEntry};
use std::collections::HashMap;

/// The checksums of the blocks of a file, as far as they are known.
#[derive(Debug)]
pub(crate) enum Checksums {
    /// Of every block.
    All(Vec<u32>),
    /// Of those that a delta has in it.
    Some {
        crcs: HashMap<u64, u32>,
        /// The block that is the last of the image, and its length there: in a delta it is filled up with zeros.
        last: Option<(u64, usize)>,
    },
}

impl Checksums {
    /// Those of file number `file` of what a writer wrote, of which 0 is its own.
    pub(crate) fn of(entry: &FileEntry, blocks: &Blocks, file: usize) -> Self {
        let crcs = &blocks.crcs;
        let short = entry.len_bytes % BLOCK_BYTES as u64;
        let some = |map: &BlockMap| {
            let last = map.places().last().filter(|place| place.file == file);
            let short = usize::try_from(short).ok().filter(|short| *short > 0);
            Self::Some {
                crcs: map.crcs_of(file, crcs),
                last: last.map(|place| place.block).zip(short),
            }
        };
        blocks
            .map
            .as_ref()
            .map_or_else(|| Self::All(crcs.clone()), some)
    }

    /// Whether these are the bytes of block number `block`, as far as is known.
    pub(crate) fn hold(&self, block: usize, bytes: &[u8]) -> bool {
        let number = block as u64;
        match self {
            Self::All(crcs) => crcs.get(block).is_none_or(|crc| *crc == crc32c(bytes)),
            Self::Some { crcs, last } => {
                let short = last.filter(|(last, _)| *last == number);
                let len = short.map_or(bytes.len(), |(_, len)| len.min(bytes.len()));
                let crc = crcs.get(&number);
                crc.is_none_or(|crc| *crc == crc32c(&bytes[..len]))
            }
        }
    }
}
