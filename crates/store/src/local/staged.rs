//! One object on its way to its place: written aside, made durable, then published in one step.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::temp::TempFile;
use super::{folder, system};
use crate::{Error, PutMode};

/// How often making a file is tried while others remove its folder as empty.
const MAX_FOLDER_RACES: u32 = 64;

/// The file of an object that is not published yet; dropped, it leaves nothing behind.
#[derive(Debug)]
pub(super) struct Staged {
    key: String,
    /// How many bytes the object will have.
    len: u64,
    temp: TempFile,
    root: PathBuf,
    target: PathBuf,
    published: bool,
}

impl Staged {
    /// Makes an empty file beside the place of `key`.
    pub(super) fn begin(root: &Path, key: &str, len: u64, mode: PutMode) -> Result<Self, Error> {
        let target = root.join(key);
        if mode == PutMode::Create && target.symlink_metadata().is_ok() {
            return Err(Error::AlreadyExists {
                key: key.to_owned(),
            });
        }
        let temp =
            create_temp(&target).map_err(|error| explain(&target, key, len, "create", error))?;
        Ok(Self {
            key: key.to_owned(),
            len,
            temp,
            root: root.to_owned(),
            target,
            published: false,
        })
    }

    /// The file to write to.
    pub(super) fn file(&self) -> &File {
        &self.temp.file
    }

    /// Where that file is for now.
    pub(super) fn path(&self) -> &Path {
        &self.temp.path
    }

    /// Makes the bytes written so far durable.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.file()
            .sync_all()
            .map_err(|error| self.explain("sync", error))
    }

    /// Gives the synced file its key, durably.
    pub(super) fn publish(mut self, mode: PutMode) -> Result<(), Error> {
        match self.temp.move_to(&self.target, mode) {
            Ok(()) => self.published = true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::AlreadyExists {
                    key: self.key.clone(),
                });
            }
            Err(error) => return Err(self.explain("publish", error)),
        }
        folder::sync_up(&self.root, parent(&self.target))
            .map_err(|error| self.explain("sync the folder of", error))
    }

    /// Gives a failure to write this object its meaning.
    pub(super) fn explain(&self, operation: &'static str, error: io::Error) -> Error {
        explain(&self.target, &self.key, self.len, operation, error)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published {
            // If this fails, the file is swept when its writer is known to be dead.
            let _ = self.temp.remove();
            folder::remove_empty(&self.root, parent(&self.target));
        }
    }
}

/// Makes the temporary file, and the folders it needs.
fn create_temp(target: &Path) -> io::Result<TempFile> {
    let folder = parent(target);
    let name = target.file_name().unwrap_or_default();
    for _ in 0..MAX_FOLDER_RACES {
        match TempFile::create(folder, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        // There is no folder yet, or someone has just removed it.
        match folder::make(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    TempFile::create(folder, name)
}

/// Gives a failure to write `len` bytes at `target` its meaning.
pub(super) fn explain(
    target: &Path,
    key: &str,
    len: u64,
    operation: &'static str,
    error: io::Error,
) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull => Error::NoSpace {
            key: key.to_owned(),
            needed: len,
            available: system::available_bytes(target).ok().flatten().unwrap_or(0),
        },
        io::ErrorKind::Unsupported => Error::Unsupported {
            key: key.to_owned(),
            operation,
        },
        // What was found, or is missing, is something else than the object.
        io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists => Error::Io {
            key: key.to_owned(),
            operation,
            source: error,
        },
        _ => Error::from_io(key, operation, error),
    }
}

fn parent(target: &Path) -> &Path {
    target.parent().expect("a key adds a segment to the root")
}
