//! Mends one data file, block by block.

use super::{Mending, damage_of};
use crate::Error;
use crate::checkpoint::StoredFile;
use crate::checksum::BLOCK_BYTES;
use crate::copies::{Checksums, Copying};
use crate::error::{StoreContext, list};
use crate::packed::{self, is_packed};
use crate::pool::CHUNK_BYTES;
use crate::verify::stretch_buffer;
use cairn_store::{AlignedBuffer, ObjectReader, ObjectWriter, PutMode, Store};
use std::ops::Range;

/// The ending of a file that is being put together.
const UNFINISHED: &str = ".repair";

impl Mending<'_> {
    /// Mends the files that hold the data of a writer: its own, and those that it refers to.
    pub(super) fn data(&mut self, writer: usize) -> Result<(), Error> {
        // Either will do: they have one digest.
        let part = self.copied.read_part(writer);
        let part = part.or_else(|_| self.here.read_part(writer));
        let (part, blocks) = match part {
            Ok(part) => part,
            Err(error) if error.is_damage() => {
                let key = self.here.keys().data(writer);
                self.lost(key, "the part that describes it is lost".into());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let Some(entry) = part.part.file else {
            return Ok(());
        };
        let files = self.here.stored_files(&entry, &blocks);
        for (number, file) in files.iter().enumerate().filter(|(_, file)| file.exists()) {
            self.file(file, Checksums::of(&entry, &blocks, number))?;
        }
        Ok(())
    }

    fn file(&mut self, file: &StoredFile, crcs: Checksums) -> Result<(), Error> {
        let key = file.key.clone();
        let here = open(self.here.store().as_ref(), file)?;
        let copy = open(self.copied.store().as_ref(), file)?;
        let found = here.as_ref().or(copy.as_ref());
        let sides = Sides {
            len: found.map_or(file.len_bytes, |reader| reader.len()),
            crcs,
            key: key.clone(),
            here,
            copy,
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
            match is_packed(&key) {
                true => self.take_over(&key, &sides)?,
                false => self.put_together(&key, &sides)?,
            }
        }
        let ranges = damaged.iter().map(|block| sides.range(block.index));
        let bytes = ranges.map(|range| range.end - range.start).sum();
        self.repaired(key, bytes, problem);
        Ok(())
    }

    /// Puts the copy of a packed file in its place: blocks of two of them cannot be put together.
    fn take_over(&self, key: &str, sides: &Sides) -> Result<(), Error> {
        let (from, store) = (self.copied.store(), self.here.store());
        let Some(copy) = &sides.copy else {
            return Err(Error::damaged(key, "the copy changed while it was read"));
        };
        let aside = format!("{key}{UNFINISHED}");
        store.delete(&aside).doing(|| format!("delete `{aside}`"))?;
        let copying = Copying {
            key,
            from: copy.as_ref(),
            crcs: &sides.crcs,
            pace: None,
        };
        copying.write(from.as_ref(), store.as_ref(), &aside)?;
        let renamed = store.rename(&aside, key, PutMode::Replace);
        renamed.doing(|| format!("put `{key}` in its place"))
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

/// A side's file, if it is there and can be what it should be.
fn open(store: &dyn Store, file: &StoredFile) -> Result<Option<Box<dyn ObjectReader>>, Error> {
    match packed::open(store, &file.key) {
        Err(error) if error.is_damage() => Ok(None),
        opened => Ok(Some(opened?).filter(|reader| file.fits(reader.len()))),
    }
}

/// The two copies of a file, and what its blocks must be.
struct Sides {
    key: String,
    len: u64,
    crcs: Checksums,
    here: Option<Box<dyn ObjectReader>>,
    copy: Option<Box<dyn ObjectReader>>,
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
                if self.here.is_none() || !self.crcs.fit(index, block) {
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
                let whole = self.here.is_some() && self.crcs.fit(index, block);
                if !whole && !self.copy_block(index, block)? {
                    let reason = "the copy of it changed while it was read";
                    return Err(Error::damaged(&self.key, reason));
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
                    let read = file.read_at(offset, bytes);
                    damage_of(read.doing(|| format!("read `{}`", self.key)))?
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
        let read = file.read_at(self.range(index).start, block);
        let unreadable = damage_of(read.doing(|| format!("read `{}`", self.key)))?;
        Ok(unreadable.is_none() && self.crcs.fit(index, block))
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
