//! The calls that go beyond `std::fs`, each with its answer for file systems that lack it.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, CWD, FallocateFlags, OFlags, RenameFlags};
use rustix::io::Errno;

/// How many bytes this user can still write at `path`, which need not exist yet.
///
/// File systems without a size of their own do not know.
pub(crate) fn available_bytes(path: &Path) -> io::Result<Option<u64>> {
    for place in path.ancestors() {
        match rustix::fs::statvfs(place) {
            Ok(found) if found.f_blocks == 0 => return Ok(None),
            Ok(found) => return Ok(Some(found.f_bavail.saturating_mul(found.f_frsize))),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// How many bytes the file system at `path` holds, used or not.
pub(crate) fn total_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_blocks.saturating_mul(found.f_frsize))
}

/// Makes a file that ends at or after `range.start` as long as the range reaches, with its space where the file system can reserve it.
pub(super) fn reserve(file: &File, range: Range<u64>) -> io::Result<()> {
    let (start, len) = (range.start, range.end.saturating_sub(range.start));
    if len == 0 {
        return Ok(());
    }
    let flags = FallocateFlags::empty();
    let reserved = rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, start, len));
    match reserved {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(range.end),
        other => Ok(other?),
    }
}

/// Opens `path` for reading, without waiting for anybody: a pipe with no writer would never open.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// As [`open_to_read`], where a link is an error as well: in a folder that others may write to, it may lead anywhere.
pub(crate) fn open_no_link(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// The user this process acts as.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens `path` for I/O that bypasses the page cache, or returns `None` where that is unknown.
pub(super) fn open_direct(path: &Path, options: &mut OpenOptions) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    match options.custom_flags(flags).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_unsupported(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Has an open file use the page cache from now on.
pub(super) fn use_page_cache(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

/// Whether this is how a file system says that it cannot do that at all, or not in this shape.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INVAL | Errno::OPNOTSUPP)
    )
}

/// Moves `source` to `target` in one step, replacing nothing.
///
/// Where the file system has no such rename (NFS), a hard link does the same in two steps.
pub(crate) fn rename_new(source: &Path, target: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, source, CWD, target, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_new(source, target),
        other => Ok(other?),
    }
}

fn link_new(source: &Path, target: &Path) -> io::Result<()> {
    match std::fs::hard_link(source, target) {
        // A repeated request finds the link that its first sending made, if only the answer was lost.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !same_file(&source.symlink_metadata()?, &target.symlink_metadata()?) {
                return Err(error);
            }
        }
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
            return Err(io::ErrorKind::Unsupported.into());
        }
        other => other?,
    }
    std::fs::remove_file(source)
}

/// Makes the names in `folder` durable; there are none if it does not exist.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Some network file systems have nothing to do here, and say so.
        Err(error) if is_unsupported(&error) => Ok(()),
        other => other,
    }
}

/// Lets go of the file's pages, so that a checkpoint does not evict the data of the training.
pub(super) fn forget_pages(file: &File) {
    // Only advice: where it cannot be given, nothing is lost.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// Whether two descriptions are of one and the same file.
pub(super) fn same_file(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_that_create_only_work_with_and_without_links() {
        for move_new in [rename_new, link_new] {
            let folder = tempfile::tempdir().unwrap();
            let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
            std::fs::write(&source, "one").unwrap();
            move_new(&source, &target).unwrap();
            assert!(!source.exists());

            std::fs::write(&source, "two").unwrap();
            let taken = move_new(&source, &target).unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read(&source).unwrap(), b"two");
            assert_eq!(std::fs::read(&target).unwrap(), b"one");
        }
    }

    #[test]
    fn a_link_that_is_made_already_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
        std::fs::write(&source, "one").unwrap();
        std::fs::hard_link(&source, &target).unwrap();
        link_new(&source, &target).unwrap();
        assert!(!source.exists() && target.exists());
    }
}
