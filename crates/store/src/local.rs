//! A store in a folder of a file system.
//!
//! Every object is a file at its key's path. It is written aside under a temporary name in the same
//! folder, synced, moved to its place in one step, and then the folder is synced:
//!
//! ```text
//! ROOT/step-00000100/.tmp-…    being written; in no listing
//! ROOT/step-00000100/COMMIT    published
//! ```

use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Location, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store, key};

mod folder;
mod journal;
mod listing;
mod locate;
mod reader;
mod scratch;
mod staged;
pub(crate) mod system;
mod temp;
mod writer;

pub use journal::Journal;
use reader::LocalReader;
pub use scratch::Scratch;
use staged::Staged;
use writer::LocalWriter;

/// A store in a folder of a file system.
#[derive(Debug, Clone)]
pub struct Local {
    root: PathBuf,
    options: LocalOptions,
}

/// How a [`Local`] store does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalOptions {
    /// Whether large objects bypass the page cache, where the file system can. On by default.
    pub direct: bool,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self { direct: true }
    }
}

impl Local {
    /// A store in the folder `root`, which the first write makes if it does not exist.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::with_options(root, LocalOptions::default())
    }

    /// A store in the folder `root` with the given options.
    pub fn with_options(root: impl Into<PathBuf>, options: LocalOptions) -> Self {
        let root = root.into();
        // Later changes of the working directory must not move the store.
        let root = std::path::absolute(&root).unwrap_or(root);
        Self { root, options }
    }

    /// The folder this store is in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Publishes a small new object that nobody but its owner may read.
    ///
    /// # Errors
    ///
    /// As [`Store::put`] with [`PutMode::Create`].
    pub fn put_private(&self, key: &str, bytes: &[u8]) -> Result<(), Error> {
        self.publish(key, bytes, PutMode::Create, Some(0o600))
    }

    fn publish(
        &self,
        key: &str,
        bytes: &[u8],
        mode: PutMode,
        permissions: Option<u32>,
    ) -> Result<(), Error> {
        key::check(key)?;
        let staged = Staged::begin(&self.root, key, bytes.len() as u64, mode)?;
        let file = staged.file();
        let limited = permissions.map(Permissions::from_mode);
        limited
            .map_or(Ok(()), |permissions| file.set_permissions(permissions))
            .and_then(|()| file.write_all_at(bytes, 0))
            .map_err(|error| staged.explain("write", error))?;
        staged.sync()?;
        staged.publish(mode)
    }

    /// The path of an object that is to be moved or deleted: one that really lies in this store's folder.
    fn own_path(&self, key: &str) -> Result<PathBuf, Error> {
        let path = self.path(key)?;
        if self.is_below_link(path.parent().unwrap_or(&path)) {
            return Err(Error::InvalidKey {
                key: key.to_owned(),
                reason: "a folder in it is a link, and nothing is moved or deleted through links",
            });
        }
        Ok(path)
    }

    /// Whether `folder`, or one above it in this store, is a link.
    fn is_below_link(&self, folder: &Path) -> bool {
        let mut folders = folder.ancestors().take_while(|above| *above != self.root);
        folders.any(Path::is_symlink)
    }

    fn path(&self, key: &str) -> Result<PathBuf, Error> {
        key::check(key)?;
        Ok(self.root.join(key))
    }
}

impl Store for Local {
    fn url(&self) -> String {
        crate::url::from_path(&self.root)
    }

    fn locations(&self, key: &str) -> Vec<Location> {
        vec![locate::locate(&self.root.join(key))]
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        self.publish(key, bytes, mode, None)
    }

    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        let path = self.path(key)?;
        let available = system::available_bytes(&path)
            .map_err(|error| Error::from_io(key, "find the space for", error))?;
        if let Some(available) = available.filter(|available| *available < len) {
            return Err(Error::NoSpace {
                key: key.to_owned(),
                needed: len,
                available,
            });
        }
        let staged = Staged::begin(&self.root, key, len, PutMode::Create)?;
        let writer = LocalWriter::new(staged, key, len, self.options.direct)?;
        Ok(Box::new(writer))
    }

    fn create_up_to(&self, key: &str, most: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        key::check(key)?;
        let staged = Staged::begin(&self.root, key, most, PutMode::Create)?;
        let writer = LocalWriter::growing(staged, key, most, self.options.direct)?;
        Ok(Box::new(writer))
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        let path = self.path(key)?;
        let reader = LocalReader::open(key, &path, self.options.direct)?;
        Ok(Box::new(reader))
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        match self.path(key)?.metadata() {
            Ok(metadata) if metadata.is_file() => {
                Ok(Some(listing::describe(key.to_owned(), &metadata)?))
            }
            Ok(_) => Ok(None),
            Err(error) if listing::is_absent(&error) => Ok(None),
            Err(error) => Err(Error::from_io(key, "describe", error)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        key::check_prefix(prefix)?;
        listing::objects(&self.root, prefix)
    }

    fn list_files(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        key::check_prefix(prefix)?;
        listing::files(&self.root, prefix)
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        key::check_prefix(prefix)?;
        listing::folders(&self.root, prefix)
    }

    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        let (source, target) = (self.own_path(key)?, self.own_path(to)?);
        if self.head(key)?.is_none() {
            return Err(Error::NotFound {
                key: key.to_owned(),
            });
        }
        match folder::move_file(&self.root, &source, &target, mode) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(Error::AlreadyExists { key: to.to_owned() })
            }
            other => other.map_err(|error| Error::from_io(key, "rename", error)),
        }
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        let path = self.own_path(key)?;
        match std::fs::remove_file(&path).and_then(|()| folder::sync_parent(&path)) {
            Err(error) if !listing::is_absent(&error) => {
                return Err(Error::from_io(key, "delete", error));
            }
            _ => {}
        }
        // Also after a delete that found nothing: an earlier one may have stopped here.
        folder::remove_empty(&self.root, path.parent().unwrap_or(&self.root));
        Ok(())
    }

    fn is_linked(&self, prefix: &str) -> Result<bool, Error> {
        key::check_prefix(prefix)?;
        Ok(self.is_below_link(&self.root.join(prefix)))
    }

    fn settle(&self, prefix: &str) -> Result<(), Error> {
        key::check_prefix(prefix)?;
        match folder::sync_up(&self.root, &self.root.join(prefix)) {
            Err(error) if !listing::is_absent(&error) => {
                Err(Error::from_io(prefix, "sync the folder", error))
            }
            _ => Ok(()),
        }
    }

    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        key::check_prefix(prefix)?;
        listing::sweep(&self.root, prefix)
    }

    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        system::available_bytes(&self.root)
            .map_err(|error| Error::from_io("", "find the space in", error))
    }
}
