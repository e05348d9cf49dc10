//! A place where the processes of one machine hand each other bytes, in memory where there is some.
//!
//! ```text
//! ROOT/cairn-exchange-NAME/
//!     2.bytes    what member 2 hands out; locked for as long as member 2 lives
//!     2.note     what member 2 says, replaced in one step
//! ```
//!
//! Bytes are written and read at any place without order: the notes say which of them mean something. The system drops the lock
//! of a process that dies, so that the others know at once. Nothing here survives a restart of the machine, nor should it.
//!
//! The place is open to all users of the machine, so what lies there may be anybody's: folders and files of others, links, and what
//! is no file are neither followed, waited for, nor removed.

#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::local::system;

/// How the folder of an exchange begins.
const FOLDER_PREFIX: &str = "cairn-exchange-";

/// How long a folder without living members is left alone: someone may be about to join.
const MAX_SILENCE: Duration = Duration::from_secs(10 * 60);

/// The least a memory file system must hold to be the default.
const MIN_MEMORY_BYTES: u64 = 512 << 20;

/// One member's access to an exchange. Dropped, it takes its bytes away and leaves its note.
#[derive(Debug)]
pub struct Exchange {
    folder: PathBuf,
    member: usize,
    bytes: File,
    posting: Mutex<()>,
}

impl Exchange {
    /// The folder for exchanges that everyone on this machine finds: shared memory, or else the folder for temporary files.
    pub fn default_root() -> PathBuf {
        let memory = PathBuf::from("/dev/shm");
        match system::total_bytes(&memory) {
            Ok(total) if total >= MIN_MEMORY_BYTES => memory,
            _ => std::env::temp_dir(),
        }
    }

    /// Joins the exchange `name` under `root` as `member`, and removes what dead exchanges left there.
    ///
    /// # Errors
    /// [`Error::InvalidKey`] if the name is no part of a path; [`Error::AlreadyExists`] if there is, or was, such a member already.
    pub fn join(root: &Path, name: &str, member: usize) -> Result<Self, Error> {
        crate::key::check(name)?;
        sweep(root);
        let folder = root.join(format!("{FOLDER_PREFIX}{name}"));
        let key = format!("{member}.bytes");
        let failed = |error| Error::from_io(&key, "create", error);
        make(&folder).map_err(failed)?;
        let bytes = take_place(&folder, member).map_err(failed)?;
        Ok(Self {
            folder,
            member,
            bytes,
            posting: Mutex::default(),
        })
    }

    /// Writes bytes that the others may read.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is not enough memory.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = self.bytes.write_all_at(bytes, offset);
        written.map_err(|error| self.explain("bytes", bytes.len(), error))
    }

    /// Reads bytes that `member` wrote.
    ///
    /// # Errors
    /// If there are none, or `member` has left.
    pub fn read_at(&self, member: usize, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let read = open_own(&self.path(member, "bytes"))
            .and_then(|file| file.read_exact_at(buffer, offset));
        read.map_err(|error| Error::from_io(&format!("{member}.bytes"), "read", error))
    }

    /// Says something to the others, in place of what was said before.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn post(&self, note: &[u8]) -> Result<(), Error> {
        let _one_at_a_time = self.posting.lock().unwrap_or_else(PoisonError::into_inner);
        let draft = self.path(self.member, "draft");
        let posted = std::fs::write(&draft, note)
            .and_then(|()| std::fs::rename(&draft, self.path(self.member, "note")));
        posted.map_err(|error| self.explain("note", note.len(), error))
    }

    /// What `member` says, or `None` if it has said nothing yet.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn note(&self, member: usize) -> Result<Option<Vec<u8>>, Error> {
        let mut note = Vec::new();
        let read =
            open_own(&self.path(member, "note")).and_then(|mut file| file.read_to_end(&mut note));
        match read {
            Ok(_) => Ok(Some(note)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::from_io(&format!("{member}.note"), "read", error)),
        }
    }

    /// Whether the process of `member` lives and has not left. Where files cannot be locked, everyone seems to live.
    pub fn is_alive(&self, member: usize) -> bool {
        is_locked(&self.path(member, "bytes"))
    }

    /// How many more bytes fit, or `None` where that has no meaning.
    ///
    /// # Errors
    /// If the system does not answer.
    pub fn available_bytes(&self) -> Result<Option<u64>, Error> {
        system::available_bytes(&self.folder)
            .map_err(|error| Error::from_io("bytes", "find the space for", error))
    }

    /// Ends the exchange for everyone: all notes and bytes disappear in one moment.
    pub fn remove(self) {
        let mut gone = self.folder.clone().into_os_string();
        gone.push(".gone");
        // If someone else was first, or a process died in between, the next sweep does the rest.
        let _ = std::fs::rename(&self.folder, &gone);
        let _ = std::fs::remove_dir_all(&gone);
    }

    fn path(&self, member: usize, kind: &str) -> PathBuf {
        self.folder.join(format!("{member}.{kind}"))
    }

    fn explain(&self, kind: &str, len: usize, error: io::Error) -> Error {
        let key = format!("{}.{kind}", self.member);
        match error.kind() {
            io::ErrorKind::StorageFull => Error::NoSpace {
                key,
                needed: len as u64,
                available: self.available_bytes().ok().flatten().unwrap_or(0),
            },
            _ => Error::from_io(&key, "write", error),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // The folder may be gone already.
        let _ = std::fs::remove_file(self.path(self.member, "bytes"));
    }
}

/// Makes the folder of an exchange, which only this user can look into. One that is somebody else's, or a link, is refused.
fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Err(_)
            if !folder
                .symlink_metadata()
                .is_ok_and(|found| is_own_folder(&found)) =>
        {
            Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "`{}` is there and is no folder of this user",
                    folder.display()
                ),
            ))
        }
        _ => Ok(()),
    }
}

fn is_own_folder(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == system::own_user()
}

/// Opens a file of this user to read; links are not followed, and a pipe is not waited for.
fn open_own(path: &Path) -> io::Result<File> {
    let file = system::open_no_link(path)?;
    let found = file.metadata()?;
    match found.is_file() && found.uid() == system::own_user() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("`{}` is no file of this user", path.display()),
        )),
    }
}

/// Makes a member's file. It has its name only once it is locked, so that nobody takes the member for dead.
fn take_place(folder: &Path, member: usize) -> io::Result<File> {
    let draft = folder.join(format!("{member}.draft"));
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&draft)?;
    if let Err(TryLockError::Error(error)) = file.try_lock() {
        tracing::debug!(%error, "no locks here: a dead member is found by its silence");
    }
    let named = system::rename_new(&draft, &folder.join(format!("{member}.bytes")));
    if named.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    named.map(|()| file)
}

/// Whether a living process has locked the file; also if that cannot be known. What is no file of this user was locked by no member.
fn is_locked(path: &Path) -> bool {
    match open_own(path) {
        Ok(file) => file.try_lock_shared().is_err(),
        Err(_) => path
            .symlink_metadata()
            .is_ok_and(|found| found.is_file() && found.uid() == system::own_user()),
    }
}

/// Removes exchanges of this user whose members are all dead for a while.
fn sweep(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name
            .as_encoded_bytes()
            .starts_with(FOLDER_PREFIX.as_bytes());
        if is_ours && is_dead(&entry.path()) {
            // Just removed by someone else, perhaps: not ours to worry about.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn is_dead(folder: &Path) -> bool {
    let Ok(found) = folder.symlink_metadata() else {
        return false;
    };
    let silence = found.modified();
    let silence = silence.map(|time| SystemTime::now().duration_since(time));
    let is_silent = matches!(silence, Ok(Ok(silence)) if silence > MAX_SILENCE);
    let files = || std::fs::read_dir(folder).into_iter().flatten().flatten();
    is_own_folder(&found) && is_silent && !files().any(|file| is_locked(&file.path()))
}
