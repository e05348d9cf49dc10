//! The checksums of the blocks of a file, as far as they are known.

use crate::delta::BlockMap;
use crate::part::Blocks;
use std::collections::HashMap;

/// The checksums of the blocks of a file, as far as they are known.
#[derive(Debug)]
pub(crate) enum Checksums {
    /// Of every block.
    All(Vec<u32>),
    /// Of those that a delta has in it.
    Some(HashMap<u64, u32>),
}

impl Checksums {
    /// Those of file number `file` of a writer, of which 0 is its own.
    pub(crate) fn of(blocks: &Blocks, file: usize) -> Self {
        let crcs = &blocks.crcs;
        let some = |map: &BlockMap| Self::Some(map.crcs_of(file, crcs));
        blocks
            .map
            .as_ref()
            .map_or_else(|| Self::All(crcs.clone()), some)
    }

    /// That of block number `block`.
    pub(crate) fn get(&self, block: usize) -> Option<u32> {
        match self {
            Self::All(crcs) => crcs.get(block).copied(),
            Self::Some(crcs) => crcs.get(&(block as u64)).copied(),
        }
    }
}
