//! Which blocks of an image are new, and where in the file of a delta they go.

use super::base::Base;
use super::map::BlockPlace;
use super::{BlockHash, BlockMap, DeltaEntry};
use crate::checksum::{BLOCK_BYTES, sha256_hex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A delta while it is written, by several threads.
#[derive(Debug)]
pub(crate) struct Changes {
    base: Arc<Base>,
    /// The blocks its file has so far.
    blocks: AtomicU64,
}

/// Blocks of a chunk that are new, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Blocks of the chunk, side by side.
    pub(crate) blocks: Range<usize>,
    /// The first byte in the file of the delta.
    pub(crate) offset: u64,
}

impl Changes {
    /// Changes since `base`.
    pub(crate) fn new(base: Arc<Base>) -> Self {
        Self {
            base,
            blocks: AtomicU64::new(0),
        }
    }

    /// The hashes of the blocks of a chunk, the first of which is number `first` of the image.
    ///
    /// A chunk of which every block changed twice running has none: it will mostly change again, and hashes are good only for what
    /// stays. If it does stay, it is written once more.
    pub(crate) fn hashes(
        &self,
        first: usize,
        crcs: &[u32],
        hashes: impl FnOnce() -> Vec<Option<BlockHash>>,
    ) -> Vec<Option<BlockHash>> {
        match self.base.keeps_changing(first, crcs) {
            true => vec![None; crcs.len()],
            false => hashes(),
        }
    }

    /// Finds a place for blocks with these hashes, the first of which is number `first` of the image.
    ///
    /// File 0 is that of the delta; the files of the base count from 1. What is new of one call lies side by side.
    pub(crate) fn place(&self, first: usize, hashes: &[Option<BlockHash>]) -> Vec<BlockPlace> {
        let numbered = (first..).zip(hashes);
        let found: Vec<Option<BlockPlace>> = numbered
            .map(|(index, hash)| self.base.find(index, (*hash)?))
            .collect();
        let new = found.iter().filter(|place| place.is_none()).count() as u64;
        let mut next = self.blocks.fetch_add(new, Ordering::Relaxed);
        let place = |found: Option<BlockPlace>| match found {
            Some(BlockPlace { file, block }) => BlockPlace {
                file: file + 1,
                block,
            },
            None => {
                next += 1;
                BlockPlace {
                    file: 0,
                    block: next - 1,
                }
            }
        };
        found.into_iter().map(place).collect()
    }

    /// The bytes of the file so far.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed) * BLOCK_BYTES as u64
    }

    /// What the part of the file says, when every block of the image has its place.
    pub(crate) fn finish(self, places: Vec<BlockPlace>) -> (DeltaEntry, BlockMap) {
        let mut used: BTreeMap<usize, usize> = BTreeMap::new();
        let referred = places.iter().filter(|place| place.file > 0);
        used.extend(referred.map(|place| (place.file, 0)));
        for (number, (_, new)) in used.iter_mut().enumerate() {
            *new = number + 1;
        }
        let renumbered = places.into_iter().map(|place| BlockPlace {
            file: used.get(&place.file).copied().unwrap_or(0),
            ..place
        });
        let map = BlockMap::new(renumbered);
        let key = |file: &usize| self.base.file(file - 1).map(str::to_string);
        let entry = DeltaEntry {
            stored_bytes: self.stored_bytes(),
            bases: used.keys().filter_map(key).collect(),
            map_sha256: sha256_hex(map.to_text().as_bytes()),
        };
        (entry, map)
    }
}

/// The stretches of new blocks among those that lie at `places`.
pub(crate) fn stretches(places: &[BlockPlace]) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    for (index, place) in places
        .iter()
        .enumerate()
        .filter(|(_, place)| place.file == 0)
    {
        match found.last_mut() {
            Some(last) if last.blocks.end == index => last.blocks.end += 1,
            _ => found.push(Stretch {
                blocks: index..index + 1,
                offset: place.block * BLOCK_BYTES as u64,
            }),
        }
    }
    found
}
