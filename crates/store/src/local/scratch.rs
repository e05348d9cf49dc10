//! Files without a name, for bytes that need not last.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::staged::explain;
use super::temp::TempFile;
use super::{folder, system};
use crate::Error;
use crate::buffer::{ALIGNMENT, AlignedBuffer, BLOCK};

/// What messages call such a file.
const KEY: &str = "scratch";

/// How much is copied to aligned memory at a time, in bytes.
const BOUNCE_BYTES: usize = 1 << 20;

/// A file without a name, for bytes that need not last: gone when dropped, and with its process, however that ends.
///
/// Its space is reserved from the start, and its bytes bypass the page cache where the file system can.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// let scratch = cairn_store::Scratch::create(folder.path(), 10_000)?;
/// scratch.write_at(4096, &[7; 5904])?;
/// let mut bytes = [0; 3];
/// scratch.read_at(9_997, &mut bytes)?;
/// assert_eq!(bytes, [7; 3]);
/// # Ok::<(), cairn_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    len: u64,
    file: File,
}

impl Scratch {
    /// A file of `len` bytes, all 0, in `folder`, which is made if it does not exist.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no room for it.
    pub fn create(folder: &Path, len: u64) -> Result<Self, Error> {
        let failed = |error| explain(folder, KEY, len, "create", error);
        folder::make(folder).map_err(failed)?;
        let temp = TempFile::create(folder, OsStr::new(KEY)).map_err(failed)?;
        let opened = reserve(&temp, len);
        // Whoever has it open keeps it; if the name stays, it is that of a dead file.
        let removed = temp.remove();
        let direct = opened.and_then(|direct| removed.map(|()| direct));
        Ok(Self {
            folder: folder.to_owned(),
            len,
            file: direct.map_err(failed)?.unwrap_or(temp.file),
        })
    }

    /// How many bytes there are.
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// Writes `bytes` at `offset`, a multiple of [`ALIGNMENT`]; so is their length, unless they reach to the end.
    ///
    /// # Errors
    /// [`Error::InvalidRange`] if the range breaks these rules.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let len = bytes.len() as u64;
        let end = self.end(offset, len, "it ends before")?;
        let aligned =
            offset.is_multiple_of(BLOCK) && (len.is_multiple_of(BLOCK) || end == self.len);
        if !aligned {
            return Err(invalid(offset, len, "it is not aligned"));
        }
        let mut bounce = AlignedBuffer::new(bounce_len(bytes.len()));
        let mut at = offset;
        for chunk in bytes.chunks(BOUNCE_BYTES) {
            bounce[..chunk.len()].copy_from_slice(chunk);
            let blocks = &bounce[..chunk.len().next_multiple_of(ALIGNMENT)];
            self.request(|file| file.write_all_at(blocks, at))
                .map_err(|error| explain(&self.folder, KEY, self.len, "write", error))?;
            at += blocks.len() as u64;
        }
        Ok(())
    }

    /// Fills `bytes` with those at `offset`.
    ///
    /// # Errors
    /// [`Error::InvalidRange`] if there are fewer.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.end(offset, bytes.len() as u64, "it ends before")?;
        let skipped = usize::try_from(offset % BLOCK).expect("less than a block");
        let mut bounce = AlignedBuffer::new(bounce_len(skipped + bytes.len()));
        let (mut at, mut skipped, mut rest) = (offset - offset % BLOCK, skipped, bytes);
        while !rest.is_empty() {
            let len = (skipped + rest.len()).min(BOUNCE_BYTES);
            let blocks = &mut bounce[..len.next_multiple_of(ALIGNMENT)];
            self.request(|file| file.read_exact_at(blocks, at))
                .map_err(|error| Error::from_io(KEY, "read", error))?;
            let (filled, after) = rest.split_at_mut(len - skipped);
            filled.copy_from_slice(&blocks[skipped..len]);
            (at, skipped, rest) = (at + len as u64, 0, after);
        }
        Ok(())
    }

    /// The end of a range that must lie inside.
    fn end(&self, offset: u64, len: u64, reason: &'static str) -> Result<u64, Error> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        end.ok_or_else(|| invalid(offset, len, reason))
    }

    /// Makes a request, once more through the page cache if it is refused: some file systems say only then that they have nothing else.
    fn request(&self, mut request: impl FnMut(&File) -> io::Result<()>) -> io::Result<()> {
        match request(&self.file) {
            Err(error) if system::is_unsupported(&error) => {
                system::use_page_cache(&self.file)?;
                request(&self.file)
            }
            other => other,
        }
    }
}

/// Takes the space of a file, and opens it for direct requests where there are such.
fn reserve(temp: &TempFile, len: u64) -> io::Result<Option<File>> {
    // Whole blocks, so that the last can be written directly, too.
    let blocks = len.checked_next_multiple_of(BLOCK);
    system::reserve(&temp.file, 0..blocks.ok_or(io::ErrorKind::StorageFull)?)?;
    system::open_direct(&temp.path, OpenOptions::new().read(true).write(true))
}

/// How much aligned memory a request of `len` bytes goes through.
fn bounce_len(len: usize) -> usize {
    len.min(BOUNCE_BYTES).next_multiple_of(ALIGNMENT)
}

fn invalid(offset: u64, len: u64, reason: &'static str) -> Error {
    Error::InvalidRange {
        key: KEY.to_owned(),
        offset,
        len,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_has_no_name_and_two_are_apart() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("not/yet");
        let [one, other] = [1, 2].map(|_| Scratch::create(&inside, 5000).unwrap());
        assert_eq!(inside.read_dir().unwrap().count(), 0);
        one.write_at(0, &[1; 5000]).unwrap();
        other.write_at(4096, &[2; 904]).unwrap();
        let mut bytes = [9; 5000];
        other.read_at(0, &mut bytes).unwrap();
        assert!(bytes[..4096].iter().all(|byte| *byte == 0) && bytes[4999] == 2);
        one.read_at(4999, &mut bytes[..1]).unwrap();
        assert_eq!(bytes[0], 1);
    }

    #[test]
    fn what_is_not_inside_or_not_aligned_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(folder.path(), 9000).unwrap();
        for (offset, len) in [(1, 4096), (0, 100), (8192, 809), (u64::MAX - 4095, 4096)] {
            let refused = scratch.write_at(offset, &vec![0; len]).unwrap_err();
            assert!(matches!(refused, Error::InvalidRange { .. }), "{offset}");
        }
        assert!(scratch.read_at(8999, &mut [0; 2]).is_err());
        assert!(scratch.read_at(9000, &mut []).is_ok());
        let huge = Scratch::create(folder.path(), u64::MAX).unwrap_err();
        assert!(
            matches!(huge, Error::NoSpace { .. } | Error::Io { .. }),
            "{huge}"
        );
    }

    #[test]
    fn a_refused_direct_request_goes_through_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(folder.path(), 8192).unwrap();
        // Most disks refuse an odd offset, as odd disks refuse every offset.
        scratch
            .request(|file| file.write_all_at(&[3; 100], 1))
            .unwrap();
        scratch.write_at(4096, &[4; 4096]).unwrap();
        let mut bytes = [9; 102];
        scratch.read_at(0, &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[1], bytes[100], bytes[101]), (0, 3, 3, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_range_reads_what_was_written(len in 1usize..3_000_000, from in 0usize..3_000_000, count in 0usize..2_200_000) {
            let folder = tempfile::tempdir().unwrap();
            let scratch = Scratch::create(folder.path(), len as u64).unwrap();
            let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
            scratch.write_at(0, &bytes).unwrap();
            let from = from % len;
            let range = from..(from + count).min(len);
            let mut read = vec![0; range.len()];
            scratch.read_at(from as u64, &mut read).unwrap();
            prop_assert!(read == bytes[range]);
        }
    }
}
