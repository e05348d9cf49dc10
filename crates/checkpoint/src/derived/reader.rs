//! A data file whose `f32` tensors are read as another type.

use super::{DERIVED_FROM, NARROWING};
use crate::Error;
use crate::assign::WriterItems;
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::error::StoreContext;
use crate::layout::Layout;
use crate::load::damage;
use crate::source::SourceFile;
use cairn_store::{AlignedBuffer, ObjectReader};
use cairn_tensor::{DType, Overflow, cast};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of the file that are read and cast at once.
const WINDOW_BYTES: usize = 64 * BLOCK_BYTES;

/// The file `stored`, which holds `items`, with its data cast from `f32` to `dtype`.
///
/// Wide types come first in a file, so every `f32` begins at a multiple of its size, and the cast of the whole data has the cast
/// of each `f32` tensor in it. What it has of other tensors means nothing.
pub(crate) fn cast_file(
    stored: Arc<SourceFile>,
    layout: Arc<Layout>,
    items: Arc<WriterItems>,
    dtype: DType,
) -> Arc<SourceFile> {
    Arc::new(SourceFile {
        key: stored.key.clone(),
        reader: Box::new(Reader {
            stored,
            layout,
            items,
            dtype,
        }),
        data_start: 0,
        // The stored bytes are checked as they are read.
        crcs: None,
        origins: None,
    })
}

struct Reader {
    stored: Arc<SourceFile>,
    layout: Arc<Layout>,
    items: Arc<WriterItems>,
    dtype: DType,
}

impl Reader {
    fn fill(&self, offset: u64, target: &mut [u8]) -> Result<(), Error> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let data_start = usize::try_from(self.stored.data_start).unwrap_or(usize::MAX);
        let most = WINDOW_BYTES.min(NARROWING * target.len()) + 2 * BLOCK_BYTES;
        let mut room = AlignedBuffer::new(most);
        let mut begin = data_start.saturating_add(offset.saturating_mul(NARROWING));
        for part in target.chunks_mut(WINDOW_BYTES / NARROWING) {
            let end = begin.saturating_add(NARROWING * part.len());
            let blocks = self.read_blocks(begin..end, &mut room)?;
            let source = &room[begin - blocks.start..end - blocks.start];
            let rounded = cast(DERIVED_FROM, self.dtype, source, part, Overflow::Native);
            rounded.map_err(|source| Error::Copy {
                name: self.stored.key.clone(),
                source,
            })?;
            begin = end;
        }
        Ok(())
    }

    /// Reads the blocks that `range` of the file lies in to the beginning of `room`, and checks them.
    fn read_blocks(&self, range: Range<usize>, room: &mut [u8]) -> Result<Range<usize>, Error> {
        let len = usize::try_from(self.stored.reader.len()).unwrap_or(usize::MAX);
        let key = &self.stored.key;
        if range.end > len {
            let reason = format!("it ends at byte {len}, before {}", range.end);
            return Err(Error::damaged(key, reason));
        }
        let start = range.start / BLOCK_BYTES * BLOCK_BYTES;
        let end = range.end.next_multiple_of(BLOCK_BYTES).min(len);
        let bytes = &mut room[..end - start];
        let read = self.stored.reader.read_at(start as u64, bytes);
        read.doing(|| format!("read bytes {start}.. of `{key}`"))?;
        let Some(crcs) = &self.stored.crcs else {
            return Ok(start..end);
        };
        for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let stored = crcs.get(start / BLOCK_BYTES + index).copied();
            let actual = crc32c(block);
            if stored != Some(actual) {
                let begin = start + index * BLOCK_BYTES;
                let damaged = begin..begin + block.len();
                let names = self.names_in(&damaged);
                return Err(damage(&self.stored, damaged, &names, stored, actual));
            }
        }
        Ok(start..end)
    }

    /// The tensors that have bytes in `range` of the file.
    fn names_in(&self, range: &Range<usize>) -> Vec<&str> {
        let first = (range.start as u64).saturating_sub(self.stored.data_start);
        let end = (range.end as u64).saturating_sub(self.stored.data_start);
        let met = self.items.items.iter().filter(|item| {
            item.len_bytes > 0 && item.offset < end && item.offset + item.len_bytes > first
        });
        let mut names: Vec<&str> = met.map(|item| self.layout.name(item.tensor)).collect();
        names.dedup();
        names
    }
}

impl ObjectReader for Reader {
    fn len(&self) -> u64 {
        let data = self.stored.reader.len();
        let elements = data.saturating_sub(self.stored.data_start) / 4;
        elements * 4 / NARROWING as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), cairn_store::Error> {
        let filled = self.fill(offset, buffer);
        filled.map_err(|error| cairn_store::Error::Io {
            key: self.stored.key.clone(),
            operation: "cast",
            // Whoever gives the failure a context finds the error itself in here.
            source: io::Error::other(error),
        })
    }
}
