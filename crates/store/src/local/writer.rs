//! Large files, written around the page cache where the file system can.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::staged::Staged;
use super::system;
use crate::buffer::{ALIGNMENT, AlignedBuffer, is_aligned};
use crate::coverage::Coverage;
use crate::{Error, ObjectWriter, PutMode};

/// How much of an unaligned buffer is copied at a time, in bytes.
const BOUNCE_BYTES: usize = 1 << 20;

/// The most space that a file of unknown length takes ahead of its bytes. Writes that make a file longer wait for one another.
const AHEAD_BYTES: u64 = 64 << 20;

/// It takes none where there is less than this: others may need it.
const PLENTY_BYTES: u64 = 1 << 30;

/// Writes one object into its staged file.
///
/// Whole blocks go to the direct descriptor. The odd bytes at the end wait for `finish`, and then go
/// through the page cache, so that the two ways never touch one page at the same time.
#[derive(Debug)]
pub(super) struct LocalWriter {
    staged: Staged,
    direct: Option<File>,
    /// Whether the file system refused a direct write, which some do only then.
    refused: AtomicBool,
    /// The most bytes there can be.
    most: u64,
    /// How far space is reserved; everywhere if there is no more to be had.
    reserved: Mutex<u64>,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    coverage: Coverage,
    /// The bytes after the last whole block, and where they belong.
    tail: Option<(u64, Vec<u8>)>,
}

impl LocalWriter {
    /// Reserves `len` bytes for the staged object.
    pub(super) fn new(staged: Staged, key: &str, len: u64, direct: bool) -> Result<Self, Error> {
        let reserved = system::reserve(staged.file(), 0..len);
        reserved.map_err(|error| staged.explain("reserve", error))?;
        let mut writer = Self::growing(staged, key, len, direct)?;
        writer.reserved = Mutex::new(len);
        Ok(writer)
    }

    /// Takes space as bytes come, for a staged object of at most `most` bytes.
    pub(super) fn growing(
        staged: Staged,
        key: &str,
        most: u64,
        direct: bool,
    ) -> Result<Self, Error> {
        let direct = if direct && most >= ALIGNMENT as u64 {
            system::open_direct(staged.path(), OpenOptions::new().write(true))
                .map_err(|error| staged.explain("open", error))?
        } else {
            None
        };
        Ok(Self {
            staged,
            direct,
            refused: AtomicBool::new(false),
            most,
            reserved: Mutex::new(0),
            progress: Mutex::new(Progress {
                coverage: Coverage::new(key, most),
                tail: None,
            }),
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves space up to `end` and, to have it in large pieces, as much again. Without it, the file grows with its bytes.
    fn make_room(&self, end: u64) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        if end <= *reserved {
            return;
        }
        let ahead = end.saturating_add(end.min(AHEAD_BYTES)).min(self.most);
        let available = system::available_bytes(self.staged.path());
        let has_plenty = matches!(available, Ok(Some(bytes)) if bytes >= PLENTY_BYTES);
        let is_reserved =
            has_plenty && system::reserve(self.staged.file(), *reserved..ahead).is_ok();
        *reserved = if is_reserved { ahead } else { u64::MAX };
    }

    /// Writes whole blocks.
    fn write_blocks(&self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        let Some(direct) = &self.direct else {
            return self.staged.file().write_all_at(blocks, offset);
        };
        if is_aligned(blocks) {
            return self.write_direct(direct, offset, blocks);
        }
        let mut bounce = AlignedBuffer::new(blocks.len().min(BOUNCE_BYTES));
        let mut offset = offset;
        for chunk in blocks.chunks(BOUNCE_BYTES) {
            bounce[..chunk.len()].copy_from_slice(chunk);
            self.write_direct(direct, offset, &bounce[..chunk.len()])?;
            offset += chunk.len() as u64;
        }
        Ok(())
    }

    /// Writes aligned blocks directly, and through the page cache from where that is refused.
    fn write_direct(&self, direct: &File, mut offset: u64, mut blocks: &[u8]) -> io::Result<()> {
        // A short write may end inside a block.
        while blocks.len().is_multiple_of(ALIGNMENT) && !self.refused.load(Ordering::Relaxed) {
            if blocks.is_empty() {
                return Ok(());
            }
            match direct.write_at(blocks, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    blocks = &blocks[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if system::is_unsupported(&error) => {
                    tracing::debug!(%error, "no direct writes here, using the page cache");
                    self.refused.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        self.staged.file().write_all_at(blocks, offset)
    }
}

impl ObjectWriter for LocalWriter {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.progress().coverage.claim(offset, bytes.len() as u64)?;
        self.make_room(offset + bytes.len() as u64);
        let (blocks, tail) = bytes.split_at(bytes.len() - bytes.len() % ALIGNMENT);
        if let Err(error) = self.write_blocks(offset, blocks) {
            self.progress().coverage.release(offset);
            return Err(self.staged.explain("write", error));
        }
        if !tail.is_empty() {
            self.progress().tail = Some((offset + blocks.len() as u64, tail.to_vec()));
        }
        Ok(())
    }

    fn finish_at(self: Box<Self>, len: u64) -> Result<(), Error> {
        self.progress().coverage.end_at(len)?;
        let cut = self.staged.file().set_len(len);
        cut.map_err(|error| self.staged.explain("cut", error))?;
        self.finish()
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let progress = self
            .progress
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        progress.coverage.check_complete()?;
        let file = self.staged.file();
        if let Some((offset, tail)) = progress.tail {
            file.write_all_at(&tail, offset)
                .map_err(|error| self.staged.explain("write", error))?;
        }
        self.staged.sync()?;
        system::forget_pages(file);
        self.staged.publish(PutMode::Create)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_direct_write_goes_through_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        let len = 2 * ALIGNMENT;
        let staged = Staged::begin(folder.path(), "a", len as u64, PutMode::Create).unwrap();
        let writer = LocalWriter::new(staged, "a", len as u64, true).unwrap();
        let mut blocks = AlignedBuffer::new(ALIGNMENT);
        blocks.fill(7);
        // Most disks refuse an odd offset, as odd disks refuse every offset.
        if let Some(direct) = &writer.direct {
            let refuses = direct.write_at(&blocks, 1).is_err();
            writer.write_direct(direct, 1, &blocks).unwrap();
            assert_eq!(writer.refused.load(Ordering::Relaxed), refuses);
        } else {
            writer.write_blocks(1, &blocks).unwrap();
        }
        let mut found = vec![0; len];
        writer.staged.file().read_exact_at(&mut found, 0).unwrap();
        assert_eq!((found[0], found[ALIGNMENT + 1]), (0, 0));
        assert!(found[1..=ALIGNMENT].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_file_of_unknown_length_takes_space_ahead_and_gives_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let most = 1 << 40;
        let staged = Staged::begin(folder.path(), "a", most, PutMode::Create).unwrap();
        let writer = LocalWriter::growing(staged, "a", most, true).unwrap();
        let bytes = vec![7; 3 * ALIGNMENT];
        writer.write_at(0, &bytes).unwrap();
        let written = bytes.len() as u64;
        let available = system::available_bytes(folder.path()).unwrap();
        let ahead = match available.is_some_and(|bytes| bytes >= PLENTY_BYTES) {
            true => written,
            false => 0,
        };
        let len = writer.staged.file().metadata().unwrap().len();
        assert_eq!(len, written + ahead);
        Box::new(writer).finish_at(written).unwrap();
        assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), bytes);
    }

    #[test]
    fn a_dropped_writer_takes_its_folders_along() {
        let folder = tempfile::tempdir().unwrap();
        let staged = Staged::begin(folder.path(), "a/b/c", 1, PutMode::Create).unwrap();
        let writer = LocalWriter::new(staged, "a/b/c", 1, true).unwrap();
        assert!(folder.path().join("a/b").is_dir());
        drop(writer);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
