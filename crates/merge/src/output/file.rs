//! One data file of the result: planned as a whole, then filled from front to back.

use crate::Error;
use crate::fill::{Fill, prepare};
use crate::merge::Merge;
use crate::passes::{BLOCK, fold};
use cairn_formats::hf::SINGLE_FILE;
use cairn_formats::safetensors::{Entry, encode};
use cairn_store::{ALIGNMENT, AlignedBuffer, ObjectWriter, Store};
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Bytes that are worked out together, while those before them are written.
pub(crate) const CHUNK_BYTES: usize = 16 << 20;

/// Chunks in memory at once: one that is filled, one that is written, one in between.
pub(crate) const CHUNKS: usize = 3;

/// Blocks that a thread works out at a time.
const PORTION_BLOCKS: usize = 4;

/// A data file, before a byte of it exists.
pub(super) struct File {
    pub(super) name: String,
    header: Vec<u8>,
    pub(super) tensors: Vec<Placed>,
    pub(super) len: u64,
}

/// A tensor in a file.
pub(super) struct Placed {
    /// Which of the merge's tensors.
    pub(super) index: usize,
    pub(super) len: u64,
}

impl File {
    /// Deals the tensors of a merge to files, in order; a tensor is never split.
    pub(super) fn deal(merge: &Merge) -> Result<Vec<Self>, Error> {
        let mut shards: Vec<Vec<Placed>> = vec![Vec::new()];
        let mut filled = 0;
        for (index, plan) in merge.tensors.iter().enumerate() {
            let len = plan.tensor.dtype.len_bytes(plan.elements());
            let len = len.filter(|_| plan.tensor.dtype.bits() % 8 == 0);
            let len = len.ok_or_else(|| Error::Tensor {
                name: plan.name.clone(),
                reason: "its elements are not whole bytes".into(),
            })? as u64;
            if filled > 0 && filled + len > merge.options.shard_bytes {
                shards.push(Vec::new());
                filled = 0;
            }
            filled += len;
            if let Some(shard) = shards.last_mut() {
                shard.push(Placed { index, len });
            }
        }
        let count = shards.len();
        let name = |index: usize| match count {
            1 => SINGLE_FILE.to_string(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
        };
        let files = shards.into_iter().enumerate();
        files
            .map(|(index, shard)| Self::new(merge, name(index), shard))
            .collect()
    }

    fn new(merge: &Merge, name: String, mut tensors: Vec<Placed>) -> Result<Self, Error> {
        // Wider elements first: every element then lies at a multiple of its size.
        tensors.sort_by_key(|placed| Reverse(merge.tensors[placed.index].tensor.dtype.bits()));
        let mut end = 0;
        let entry = |placed: &Placed| {
            let plan = &merge.tensors[placed.index];
            let begin = end;
            end += placed.len;
            Entry {
                name: plan.name.clone(),
                dtype: plan.tensor.dtype,
                shape: plan.tensor.shape.clone(),
                begin,
                end,
            }
        };
        let entries: Vec<Entry> = tensors.iter().map(entry).collect();
        let header = encode(&entries, &[("format", "pt")], ALIGNMENT);
        let header = header.ok_or_else(|| Error::Tensor {
            name: format!("the header of {name}"),
            reason: "it is over the file format's limit of 100 MB".into(),
        })?;
        Ok(Self {
            name,
            len: header.len() as u64 + end,
            header,
            tensors,
        })
    }

    /// Works out and writes the file, under another key for now.
    pub(super) fn write(
        &self,
        merge: &Merge,
        target: &dyn Store,
        key: &str,
        progress: &AtomicU64,
    ) -> Result<(), Error> {
        let writer = target.create(key, self.len)?;
        let len = usize::try_from(self.len).unwrap_or(CHUNK_BYTES);
        let chunk_bytes = len.min(CHUNK_BYTES).next_multiple_of(ALIGNMENT);
        thread::scope(|scope| {
            let (full, to_write) = sync_channel(CHUNKS - 2);
            let (empty, free) = sync_channel(CHUNKS);
            for _ in 0..CHUNKS {
                let _ = empty.send(AlignedBuffer::new(chunk_bytes));
            }
            let written = scope.spawn(|| write_chunks(writer, to_write, empty, progress));
            let filled = self.fill(merge, Image::new(chunk_bytes, full, free));
            let written = match written.join() {
                Ok(written) => written,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            // What could not be written is the cause of what could not be sent.
            let writer = written?;
            filled?;
            Ok(writer.finish()?)
        })
    }

    fn fill(&self, merge: &Merge, mut image: Image) -> Result<(), Error> {
        image.copy(&self.header)?;
        for placed in &self.tensors {
            let plan = &merge.tensors[placed.index];
            let threads = merge.options.threads;
            let operands = plan.operands(
                &merge.models,
                merge.vocabulary.as_ref(),
                threads,
                merge.options.seed,
            )?;
            let fill = prepare(plan, operands)?;
            let size = plan.tensor.dtype.bits() / 8;
            image.tensor(fill.as_ref(), plan.elements(), size, threads)?;
        }
        image.close()
    }
}

type Chunk = (u64, usize, AlignedBuffer);

/// Writes chunks as they come.
fn write_chunks(
    writer: Box<dyn ObjectWriter>,
    chunks: Receiver<Chunk>,
    free: SyncSender<AlignedBuffer>,
    progress: &AtomicU64,
) -> Result<Box<dyn ObjectWriter>, Error> {
    for (offset, len, buffer) in chunks {
        writer.write_at(offset, &buffer[..len])?;
        progress.fetch_add(len as u64, Ordering::Relaxed);
        // Nobody takes it back after the last chunk.
        let _ = free.send(buffer);
    }
    Ok(writer)
}

/// The bytes of a file from front to back, a chunk at a time.
struct Image {
    chunk_bytes: usize,
    chunk: Option<AlignedBuffer>,
    filled: usize,
    offset: u64,
    full: SyncSender<Chunk>,
    free: Receiver<AlignedBuffer>,
}

/// The writer stopped; it says why.
fn stopped() -> Error {
    Error::Tensor {
        name: "the file".into(),
        reason: "it can no longer be written".into(),
    }
}

impl Image {
    fn new(chunk_bytes: usize, full: SyncSender<Chunk>, free: Receiver<AlignedBuffer>) -> Self {
        Self {
            chunk_bytes,
            chunk: None,
            filled: 0,
            offset: 0,
            full,
            free,
        }
    }

    /// The next bytes of the file that are not filled yet, at most `most`.
    fn rest(&mut self, most: usize) -> Result<&mut [u8], Error> {
        if self.chunk.is_none() {
            self.chunk = Some(self.free.recv().map_err(|_| stopped())?);
        }
        let chunk = self.chunk.as_mut().ok_or_else(stopped)?;
        let len = most.min(self.chunk_bytes - self.filled);
        Ok(&mut chunk[self.filled..self.filled + len])
    }

    /// Counts bytes as filled, and sends a chunk that is full.
    fn advance(&mut self, len: usize) -> Result<(), Error> {
        self.filled += len;
        match self.filled == self.chunk_bytes {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> Result<(), Error> {
        if let Some(chunk) = self.chunk.take() {
            let len = std::mem::take(&mut self.filled);
            self.full
                .send((self.offset, len, chunk))
                .map_err(|_| stopped())?;
            self.offset += len as u64;
        }
        Ok(())
    }

    fn close(mut self) -> Result<(), Error> {
        match self.filled {
            0 => Ok(()),
            _ => self.send(),
        }
    }

    fn copy(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let rest = self.rest(bytes.len())?;
            let (now, later) = bytes.split_at(rest.len());
            rest.copy_from_slice(now);
            self.advance(now.len())?;
            bytes = later;
        }
        Ok(())
    }

    /// Adds a tensor of `elements` elements of `size` bytes each.
    fn tensor(
        &mut self,
        fill: &dyn Fill,
        elements: usize,
        size: usize,
        threads: usize,
    ) -> Result<(), Error> {
        let mut first = 0;
        while first < elements {
            let rest = self.rest((elements - first) * size)?;
            let (len, count) = (rest.len(), rest.len() / size);
            fill_portions(fill, first..first + count, size, threads, rest)?;
            self.advance(len)?;
            first += count;
        }
        Ok(())
    }
}

/// Fills memory on several threads.
fn fill_portions(
    fill: &dyn Fill,
    elements: Range<usize>,
    size: usize,
    threads: usize,
    bytes: &mut [u8],
) -> Result<(), Error> {
    let portion = PORTION_BLOCKS * BLOCK;
    let portions = bytes.chunks_mut(portion * size);
    let work = |(): &mut (), index: usize, bytes: &mut [u8]| {
        let first = elements.start + index * portion;
        fill.fill(first..first + bytes.len() / size, bytes)
    };
    fold(threads, portions, || (), work)?;
    Ok(())
}
