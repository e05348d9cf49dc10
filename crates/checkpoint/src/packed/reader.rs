//! Reads a packed file as the file that it stands for.

use super::codec::Decoder;
use super::index::{Index, NoIndex};
use super::is_packed;
use crate::Error;
use crate::checksum::BLOCK_BYTES;
use crate::error::StoreContext;
use cairn_store::{AlignedBuffer, Error as StoreError, ObjectReader, Store};
use std::cell::RefCell;
use std::ops::Range;

thread_local! {
    /// Its memory costs more to get than a block to unpack.
    static DECODER: RefCell<Decoder> = RefCell::new(Decoder::new());
}

/// The most packed bytes that are read at once.
const READ_BYTES: u64 = 8 << 20;

/// Opens a data file, whichever form it has.
///
/// # Errors
/// If it cannot be opened; damage, if it is packed and its index is not what it was.
pub(crate) fn open(store: &dyn Store, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
    let opened = store.reader(key);
    let object = opened.doing(|| format!("open `{key}`"))?;
    if !is_packed(key) {
        return Ok(object);
    }
    match Index::read(object.as_ref()) {
        Ok(index) => Ok(Box::new(Unpacked {
            key: key.to_string(),
            object,
            index,
        })),
        Err(NoIndex::Damaged(reason)) => Err(Error::damaged(key, reason)),
        Err(NoIndex::Unreadable(source)) => {
            Err(source).doing(|| format!("read the index of `{key}`"))
        }
    }
}

/// A packed file that is read as what it stands for.
///
/// A block that cannot be unpacked reads as zeros. Who reads compares it with its checksum anyway, and can say what it held.
struct Unpacked {
    key: String,
    object: Box<dyn ObjectReader>,
    index: Index,
}

/// Blocks that lie side by side, and where.
struct Run {
    blocks: Range<u64>,
    bytes: Range<u64>,
}

impl Unpacked {
    fn truncated(&self, offset: u64, wanted: u64) -> StoreError {
        StoreError::Truncated {
            key: self.key.clone(),
            offset,
            wanted,
            got: self.index.len.saturating_sub(offset),
        }
    }

    /// The blocks from the first of `blocks` on that can be read at once: what lies between two is no more than filling, or than is read faster than left out.
    fn run(&self, blocks: Range<u64>) -> Option<Run> {
        let first = self.index.range(blocks.start)?;
        let gap = self.object.gap_bytes().max(cairn_store::ALIGNMENT as u64);
        let (mut bytes, mut end) = (first, blocks.start + 1);
        for block in blocks.start + 1..blocks.end {
            let next = self.index.range(block)?;
            let joins = next.start >= bytes.end && next.start - bytes.end <= gap;
            if !joins || next.end - bytes.start > READ_BYTES {
                break;
            }
            (bytes.end, end) = (next.end, block + 1);
        }
        Some(Run {
            blocks: blocks.start..end,
            bytes,
        })
    }

    /// Where a block lies unpacked.
    fn unpacked(&self, block: u64) -> Range<u64> {
        let begin = block * BLOCK_BYTES as u64;
        begin..(begin + BLOCK_BYTES as u64).min(self.index.len)
    }

    /// Unpacks the blocks of a run, whose bytes are `packed`, into `buffer`, which begins at `offset` of the file.
    fn unpack(
        &self,
        run: &Run,
        packed: &[u8],
        offset: u64,
        buffer: &mut [u8],
        decoder: &mut Decoder,
    ) {
        let end = offset + buffer.len() as u64;
        for block in run.blocks.clone() {
            let Some(bytes) = self.index.range(block) else {
                continue;
            };
            let packed = &packed[between(run.bytes.start, &bytes)];
            let whole = self.unpacked(block);
            let wanted = whole.start.max(offset)..whole.end.min(end);
            let target = &mut buffer[between(offset, &wanted)];
            let done = match wanted == whole {
                true => decoder.unpack(packed, target),
                false => {
                    let mut all = vec![0; between(whole.start, &whole).len()];
                    let done = decoder.unpack(packed, &mut all);
                    target.copy_from_slice(&all[between(whole.start, &wanted)]);
                    done
                }
            };
            if done.is_none() {
                target.fill(0);
            }
        }
    }
}

/// Where `range` lies in memory that begins at `start`.
fn between(start: u64, range: &Range<u64>) -> Range<usize> {
    let at = |position: u64| usize::try_from(position - start).unwrap_or(usize::MAX);
    at(range.start)..at(range.end)
}

impl ObjectReader for Unpacked {
    fn len(&self) -> u64 {
        self.index.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let wanted = buffer.len() as u64;
        let end = offset.checked_add(wanted).filter(|end| *end <= self.len());
        let end = end.ok_or_else(|| self.truncated(offset, wanted))?;
        if buffer.is_empty() {
            return Ok(());
        }
        let block = BLOCK_BYTES as u64;
        let (mut next, last) = (offset / block, end.div_ceil(block));
        while next < last {
            let run = self.run(next..last);
            let run = run.ok_or_else(|| self.truncated(offset, wanted))?;
            let mut packed = AlignedBuffer::new(between(run.bytes.start, &run.bytes).len());
            self.object.read_at(run.bytes.start, &mut packed)?;
            DECODER.with_borrow_mut(|decoder| {
                self.unpack(&run, &packed, offset, buffer, decoder);
            });
            next = run.blocks.end;
        }
        Ok(())
    }

    fn gap_bytes(&self) -> u64 {
        self.object.gap_bytes()
    }
}
