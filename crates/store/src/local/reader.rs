//! Files read around the page cache where the request and the file system allow it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::system;
use crate::buffer::{ALIGNMENT, BLOCK, is_aligned};
use crate::{Error, ObjectReader};

/// Reads one file: aligned blocks directly, everything else through the page cache.
#[derive(Debug)]
pub(super) struct LocalReader {
    key: String,
    path: PathBuf,
    len: u64,
    file: File,
    /// Opened by the first aligned read; `None` inside where there is no direct I/O.
    direct: OnceLock<Option<File>>,
    /// Whether the file system refused a direct read, which some do only then.
    refused: AtomicBool,
}

impl LocalReader {
    /// Opens the file at `path`.
    pub(super) fn open(key: &str, path: &Path, direct: bool) -> Result<Self, Error> {
        let failed = |error| open_error(key, error);
        let file = system::open_to_read(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Error::NotFound {
                key: key.to_owned(),
            });
        }
        Ok(Self {
            key: key.to_owned(),
            path: path.to_owned(),
            len: metadata.len(),
            file,
            direct: if direct {
                OnceLock::new()
            } else {
                OnceLock::from(None)
            },
            refused: AtomicBool::new(false),
        })
    }

    /// The descriptor for direct reads, if there is one and it works.
    fn direct(&self) -> Option<&File> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let direct = self.direct.get_or_init(|| {
            let file = system::open_direct(&self.path, OpenOptions::new().read(true)).ok()??;
            // Meanwhile the object may have been replaced.
            let same = system::same_file(&file.metadata().ok()?, &self.file.metadata().ok()?);
            same.then_some(file)
        });
        direct.as_ref()
    }

    /// Reads into `buffer` until it is full, the file ends, or it fails; returns how much was read.
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_some(offset + filled as u64, &mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Reads once, directly if the place and the memory are aligned.
    fn read_some(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let blocks = buffer.len() - buffer.len() % ALIGNMENT;
        if blocks > 0 && offset.is_multiple_of(BLOCK) && is_aligned(buffer) {
            self.read_direct(offset, buffer, blocks)
        } else {
            self.file.read_at(buffer, offset)
        }
    }

    /// Reads up to `blocks` bytes directly, or any number through the page cache if that is refused.
    fn read_direct(&self, offset: u64, buffer: &mut [u8], blocks: usize) -> io::Result<usize> {
        let Some(direct) = self.direct() else {
            return self.file.read_at(buffer, offset);
        };
        match direct.read_at(&mut buffer[..blocks], offset) {
            Err(error) if system::is_unsupported(&error) => {
                tracing::debug!(%error, "no direct reads here, using the page cache");
                self.refused.store(true, Ordering::Relaxed);
                self.file.read_at(buffer, offset)
            }
            other => other,
        }
    }
}

impl ObjectReader for LocalReader {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let wanted = buffer.len() as u64;
        let truncated = |got| Error::Truncated {
            key: self.key.clone(),
            offset,
            wanted,
            got,
        };
        let rest = self.len.saturating_sub(offset);
        if wanted > rest {
            return Err(truncated(rest));
        }
        match self.fill(offset, buffer) {
            Ok(filled) if filled == buffer.len() => Ok(()),
            Ok(filled) => Err(truncated(filled as u64)),
            Err(error) => Err(Error::from_io(&self.key, "read", error)),
        }
    }
}

/// What lies under a file cannot exist.
fn open_error(key: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotADirectory => Error::NotFound {
            key: key.to_owned(),
        },
        _ => Error::from_io(key, "open", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuffer;

    #[test]
    fn a_refused_direct_read_goes_through_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * ALIGNMENT).collect();
        std::fs::write(&path, &bytes).unwrap();
        let reader = LocalReader::open("a", &path, true).unwrap();
        let mut buffer = AlignedBuffer::new(ALIGNMENT);
        // Most disks refuse an odd offset, as odd disks refuse every offset.
        let direct = reader.direct();
        let refuses = direct.is_none_or(|direct| direct.read_at(&mut buffer, 1).is_err());
        let count = reader.read_direct(1, &mut buffer, ALIGNMENT).unwrap();
        assert!(count > 0 && buffer[..count] == bytes[1..=count]);
        assert_eq!(reader.direct().is_none(), refuses);
        reader.read_at(BLOCK, &mut buffer).unwrap();
        assert!(buffer[..] == bytes[ALIGNMENT..2 * ALIGNMENT]);
    }
}
