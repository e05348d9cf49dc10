//! Writes a packed file, by several threads, in any order.

use super::codec::{Encoder, MAX_BYTES};
use super::index::{Index, index_bytes};
use crate::checksum::BLOCK_BYTES;
use crate::delta::block_count;
use crate::pool::CHUNK_BYTES;
use crate::sync::{Mutex, PoisonError};
use cairn_store::{ALIGNMENT, AlignedBuffer};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A packed file while it is written.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    /// Where the next blocks go.
    end: AtomicU64,
    /// Where each block lies.
    ranges: Mutex<BTreeMap<u64, Range<u64>>>,
}

/// Packs blocks on one thread. They are gathered, so that few and large writes are made.
pub(crate) struct Packer {
    encoder: Encoder,
    block: Vec<u8>,
    gathered: AlignedBuffer,
    len: usize,
    /// The numbers of the blocks gathered, and where each lies among them.
    blocks: Vec<(u64, Range<usize>)>,
}

impl Packing {
    /// The most bytes that a file of `len` bytes takes, written in chunks.
    pub(crate) fn most_bytes(len: u64) -> u64 {
        let chunks = len.div_ceil(CHUNK_BYTES as u64);
        let each = Packer::capacity() as u64;
        let index = index_bytes(block_count(len));
        let blocks = chunks.saturating_mul(each);
        blocks.saturating_add(index.next_multiple_of(ALIGNMENT as u64))
    }

    /// Finds a place for what `packer` has gathered: its bytes, and where they go.
    pub(crate) fn place<'a>(&self, packer: &'a mut Packer) -> (u64, &'a [u8]) {
        let len = packer.len.next_multiple_of(ALIGNMENT);
        packer.gathered[packer.len..len].fill(0);
        let offset = self.end.fetch_add(len as u64, Ordering::Relaxed);
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        for (block, range) in packer.blocks.drain(..) {
            let range = offset + range.start as u64..offset + range.end as u64;
            ranges.insert(block, range);
        }
        packer.len = 0;
        (offset, &packer.gathered[..len])
    }

    /// The bytes behind the blocks of a file of `len` bytes, and where they go. Writes are aligned, and the index ends the file: filling comes before it.
    pub(crate) fn index(self, len: u64) -> (u64, Vec<u8>) {
        let ranges = self
            .ranges
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let index = Index::new(len, ranges.into_values()).encode();
        let mut bytes = vec![0; index.len().next_multiple_of(ALIGNMENT) - index.len()];
        bytes.extend(index);
        (self.end.load(Ordering::Relaxed), bytes)
    }
}

impl Packer {
    pub(crate) fn new() -> Self {
        Self {
            encoder: Encoder::new(),
            block: Vec::with_capacity(MAX_BYTES),
            gathered: AlignedBuffer::new(Self::capacity()),
            len: 0,
            blocks: Vec::new(),
        }
    }

    /// The memory for the blocks of a chunk.
    fn capacity() -> usize {
        (CHUNK_BYTES / BLOCK_BYTES * MAX_BYTES).next_multiple_of(ALIGNMENT)
    }

    /// Gathers a block, which is number `number` of its file; no more than those of one chunk between two calls of [`Packing::place`].
    pub(crate) fn add(&mut self, number: u64, block: &[u8]) {
        self.block.clear();
        self.encoder.pack(block, &mut self.block);
        let range = self.len..self.len + self.block.len();
        self.gathered[range.clone()].copy_from_slice(&self.block);
        self.len = range.end;
        self.blocks.push((number, range));
    }
}
