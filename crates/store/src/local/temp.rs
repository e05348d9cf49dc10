//! Files that are being written and have no key yet, and how to tell the living from the dead.
//!
//! The bytes of an object gather in a file beside its final place:
//!
//! ```text
//! .tmp-3f2a91c07be4d518-8d1c22b0e5f79a46-0
//!      this boot of     the object's     slot: rival writers of
//!      this machine     name, hashed     one object take the next
//! ```
//!
//! A living writer holds a lock on its file, which the system drops when the process dies. Whoever
//! writes the same object next therefore finds a dead file without listing the folder, and removes it.
//! Locks may not reach across machines, so files of other machines are dead only after a day.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use super::system;
use crate::PutMode;
use crate::key::TEMP_PREFIX;

/// How many writers may write the same object at the same time.
const MAX_SLOTS: u32 = 4096;

/// How long an untouched file of another machine may still have a living writer.
const MAX_SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// A file without a key, locked as long as this value lives.
#[derive(Debug)]
pub(super) struct TempFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
}

impl TempFile {
    /// Makes an empty file for the object named `name` in an existing folder.
    pub(super) fn create(folder: &Path, name: &OsStr) -> io::Result<Self> {
        let stem = format!("{}{:016x}", prefix_of_this_machine(), hash(name));
        for slot in 0..MAX_SLOTS {
            let path = folder.join(format!("{stem}-{slot}"));
            if let Some(temp) = Self::take(path)? {
                return Ok(temp);
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Takes one slot, or returns `None` if it is not free; a dead one is free for the next.
    fn take(path: PathBuf) -> io::Result<Option<Self>> {
        let file = match open_options().create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // One that cannot be removed is in nobody's way.
                let _ = remove_if_dead(&path);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // Between the two calls someone may have taken this file for a dead one, and removes it.
        // On a file system without locks nobody can.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || !leads_to(&path, &file)? {
            return Ok(None);
        }
        Ok(Some(Self { path, file }))
    }

    /// Moves the file to `target`.
    ///
    /// With [`PutMode::Create`] that fails if something is there.
    pub(super) fn move_to(&self, target: &Path, mode: PutMode) -> io::Result<()> {
        if !leads_to(&self.path, &self.file)? {
            return Err(io::Error::other("the unpublished file was removed"));
        }
        match mode {
            PutMode::Create => system::rename_new(&self.path, target),
            PutMode::Replace => std::fs::rename(&self.path, target),
        }
    }

    /// Removes the file, if it was not moved.
    pub(super) fn remove(&self) -> io::Result<()> {
        if leads_to(&self.path, &self.file)? {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

/// Removes the dead files directly inside `folder`, and returns how many.
pub(super) fn sweep(folder: &Path) -> io::Result<u64> {
    let mut removed = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if is_temp(&entry.file_name()) && remove_if_dead(&entry.path())? {
            removed += 1;
        }
    }
    Ok(removed)
}

/// Like [`sweep`], but only if the folder holds nothing else; looks no further than it must.
pub(super) fn sweep_alone(folder: &Path) -> io::Result<()> {
    let mut temps = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if !is_temp(&entry.file_name()) {
            return Ok(());
        }
        temps.push(entry.path());
    }
    for path in temps {
        remove_if_dead(&path)?;
    }
    Ok(())
}

/// Whether a file of this name has no key yet.
pub(super) fn is_temp(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes())
}

/// Removes the file at `path` if its writer is dead, and returns whether it did.
fn remove_if_dead(path: &Path) -> io::Result<bool> {
    let file = match open_options().open(path) {
        Ok(file) => file,
        Err(error) if is_not_ours(error.kind()) => return Ok(false),
        Err(error) => return Err(error),
    };
    let dead = match file.try_lock() {
        Ok(()) => is_of_this_machine(path) || is_silent(&file)?,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => is_silent(&file)?,
    };
    // Whoever holds the lock is the only one to remove the file, so the answer stays true.
    if !dead || !leads_to(path, &file)? {
        return Ok(false);
    }
    std::fs::remove_file(path)?;
    tracing::debug!(path = %path.display(), "removed what a dead writer left");
    Ok(true)
}

/// Whether what could not be opened is gone, of another user, or no file of a writer.
fn is_not_ours(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory
    )
}

fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

/// Whether `path` is, still, the path of `file`.
fn leads_to(path: &Path, file: &File) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(found) => Ok(system::same_file(&found, &file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// How the names of files begin whose locks this process can see.
fn prefix_of_this_machine() -> String {
    format!("{TEMP_PREFIX}{:016x}-", machine())
}

fn is_of_this_machine(path: &Path) -> bool {
    let ours = prefix_of_this_machine();
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(ours.as_bytes()))
}

fn is_silent(file: &File) -> io::Result<bool> {
    let modified = file.metadata()?.modified()?;
    let silence = SystemTime::now().duration_since(modified);
    Ok(silence.is_ok_and(|silence| silence > MAX_SILENCE))
}

/// Stands for this machine since it started; locks reach everyone who gets the same number.
fn machine() -> u64 {
    static MACHINE: OnceLock<u64> = OnceLock::new();
    *MACHINE.get_or_init(|| {
        match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(boot) => hash(&boot),
            // A number of our own: then our files are dead to others only after a day.
            Err(_) => RandomState::new().hash_one(0),
        }
    })
}

fn hash(text: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(folder: &Path) -> TempFile {
        TempFile::create(folder, OsStr::new("name")).unwrap()
    }

    #[test]
    fn rivals_get_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [create(folder.path()), create(folder.path())];
        assert_ne!(one.path, other.path);
        assert_eq!(sweep(folder.path()).unwrap(), 0);
        assert!(one.path.exists() && other.path.exists());
    }

    #[test]
    fn a_dead_file_goes_when_its_name_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let dead = create(folder.path()).path;
        let living = create(folder.path());
        assert!(!dead.exists() && living.path.exists());
    }

    #[test]
    fn a_file_that_was_taken_away_is_not_published() {
        let folder = tempfile::tempdir().unwrap();
        let temp = create(folder.path());
        std::fs::remove_file(&temp.path).unwrap();
        std::fs::write(&temp.path, "of someone else").unwrap();
        let target = folder.path().join("name");
        temp.move_to(&target, PutMode::Create).unwrap_err();
        temp.remove().unwrap();
        assert!(!target.exists() && temp.path.exists());
    }
}
