//! Mends one data file, block by block.

use super::{Mending, damage_of};
use crate::Error;
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::error::{StoreContext, list};
use crate::pool::CHUNK_BYTES;
use crate::source::SourceFile;
use crate::verify::stretch_buffer;
use cairn_store::{AlignedBuffer, ObjectWriter, PutMode};
use std::ops::Range;
use std::sync::Arc;

/// The ending of a file that is being put together.
const UNFINISHED: &str = ".repair";

impl Mending<'_> {
    pub(super) fn data(&mut self, writer: usize) -> Result<(), Error> {
        let key = self.here.keys().data(writer);
        // Either will do: they have one digest.
        let part = self.copied.read_part(writer);
        let part = part.or_else(|_| self.here.read_part(writer));
        let (part, blocks) = match part {
            Ok(part) => part,
            Err(error) if error.is_damage() => {
                self.lost(key, "the part that describes it is lost".into());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let Some(entry) = part.part.file else {
            return Ok(());
        };
        let sides = Sides {
            len: entry.len_bytes,
            crcs: blocks.crcs,
            here: self.open(writer, entry.len_bytes, true)?,
            copy: self.open(writer, entry.len_bytes, false)?,
        };
        let damaged = sides.look(self.progress)?;
        let Some(problem) = sides.problem(&damaged) else {
            self.whole(key);
            return Ok(());
        };
        if damaged.iter().any(|block| block.is_lost) {
            self.lost(key, problem);
            return Ok(());
        }
        if !self.dry_run {
            self.put_together(&key, &sides)?;
        }
        let ranges = damaged.iter().map(|block| sides.range(block.index));
        let bytes = ranges.map(|range| range.end - range.start).sum();
        self.repaired(key, bytes, problem);
        Ok(())
    }

    /// A side's file, if it is there and has its length.
    fn open(&self, writer: usize, len: u64, here: bool) -> Result<Option<Arc<SourceFile>>, Error> {
        let side = if here { &self.here } else { &self.copied };
        let key = side.keys().data(writer);
        let reader = side.store().reader(&key).doing(|| format!("open `{key}`"));
        if let Err(error) = &reader
            && error.is_damage()
        {
            return Ok(None);
        }
        let reader = reader?;
        Ok((reader.len() == len).then(|| {
            Arc::new(SourceFile {
                key,
                reader,
                data_start: 0,
                crcs: None,
                origins: None,
            })
        }))
    }

    /// Writes the file anew, each block from the side where it is whole, and puts it in its place.
    fn put_together(&self, key: &str, sides: &Sides) -> Result<(), Error> {
        let store = self.here.store();
        let aside = format!("{key}{UNFINISHED}");
        store.delete(&aside).doing(|| format!("delete `{aside}`"))?;
        let doing = || format!("write `{aside}`");
        let writer = store.create(&aside, sides.len).doing(doing)?;
        sides
            .write(writer.as_ref())
            .and_then(|()| writer.finish().doing(doing))?;
        let renamed = store.rename(&aside, key, PutMode::Replace);
        renamed.doing(|| format!("put `{key}` in its place"))
    }
}

/// The two copies of a file, and what its blocks must be.
struct Sides {
    len: u64,
    crcs: Vec<u32>,
    here: Option<Arc<SourceFile>>,
    copy: Option<Arc<SourceFile>>,
}

/// A block that is not whole here.
struct Damaged {
    index: usize,
    /// Whether it is not whole in the copy either.
    is_lost: bool,
}

impl Sides {
    fn range(&self, block: usize) -> Range<u64> {
        let begin = block as u64 * BLOCK_BYTES as u64;
        begin..(begin + BLOCK_BYTES as u64).min(self.len)
    }

    /// The blocks that are not whole here.
    fn look(&self, progress: &dyn Fn(u64)) -> Result<Vec<Damaged>, Error> {
        let mut damaged = Vec::new();
        self.each_chunk(|first, bytes| {
            progress(bytes.len() as u64);
            for (index, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
                let index = first + index;
                if self.here.is_none() || crc32c(block) != self.crcs[index] {
                    let is_lost = !self.copy_block(index, block)?;
                    damaged.push(Damaged { index, is_lost });
                }
            }
            Ok(())
        })?;
        Ok(damaged)
    }

    /// Writes every block from a side where it is whole.
    fn write(&self, writer: &dyn ObjectWriter) -> Result<(), Error> {
        self.each_chunk(|first, bytes| {
            for (index, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
                let index = first + index;
                let whole = self.here.is_some() && crc32c(block) == self.crcs[index];
                if !whole && !self.copy_block(index, block)? {
                    let key = self
                        .copy
                        .as_ref()
                        .map_or("the copy", |file| file.key.as_str());
                    return Err(Error::damaged(key, "it changed while it was read"));
                }
            }
            let offset = first as u64 * BLOCK_BYTES as u64;
            writer
                .write_at(offset, bytes)
                .doing(|| "write the file".into())
        })
    }

    /// Calls `each` with the number of the first block and the bytes of each chunk, as they are here; zeros if nothing is.
    fn each_chunk(
        &self,
        mut each: impl FnMut(usize, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut buffer: AlignedBuffer = stretch_buffer(self.len, CHUNK_BYTES);
        for offset in (0..self.len).step_by(CHUNK_BYTES) {
            let left = usize::try_from(self.len - offset).unwrap_or(usize::MAX);
            let bytes = &mut buffer[..left.min(CHUNK_BYTES)];
            let unreadable = match &self.here {
                None => None,
                Some(file) => {
                    let read = file.reader.read_at(offset, bytes);
                    damage_of(read.doing(|| format!("read `{}`", file.key)))?
                }
            };
            if self.here.is_none() || unreadable.is_some() {
                bytes.fill(0);
            }
            let first = usize::try_from(offset / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
            each(first, bytes)?;
        }
        Ok(())
    }

    /// Fills `block` from the copy; whether it is whole there.
    fn copy_block(&self, index: usize, block: &mut [u8]) -> Result<bool, Error> {
        let Some(file) = &self.copy else {
            return Ok(false);
        };
        let read = file.reader.read_at(self.range(index).start, block);
        let unreadable = damage_of(read.doing(|| format!("read `{}`", file.key)))?;
        Ok(unreadable.is_none() && crc32c(block) == self.crcs[index])
    }

    /// What is wrong here, in words.
    fn problem(&self, damaged: &[Damaged]) -> Option<String> {
        if self.here.is_none() {
            return Some("it is missing, or has another length".into());
        }
        let ranges: Vec<String> = damaged
            .iter()
            .map(|block| self.range(block.index))
            .map(|range| format!("{}..{}", range.start, range.end))
            .collect();
        (!ranges.is_empty()).then(|| format!("bytes {} are damaged", list(&ranges)))
    }
}
