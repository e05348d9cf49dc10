//! What is under a folder, as keys.

use std::fs::{DirEntry, Metadata};
use std::io;
use std::path::Path;

use super::{folder, temp};
use crate::key::{self, MAX_KEY_BYTES};
use crate::{Error, ObjectMeta};

/// One visible name in a folder; links are followed.
struct Entry {
    name: String,
    metadata: Metadata,
    /// Whether it is a link to what it describes. Nobody goes down into one: links lead anywhere, and round in circles.
    is_link: bool,
}

impl Entry {
    fn is_folder_here(&self) -> bool {
        self.metadata.is_dir() && !self.is_link
    }
}

/// Lists all objects under the folder `prefix` of `root`, sorted by key.
pub(super) fn objects(root: &Path, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![prefix.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in entries(root, &folder)? {
            let key = join(&folder, &entry.name);
            if key.len() > MAX_KEY_BYTES {
                continue;
            }
            if entry.is_folder_here() {
                folders.push(key);
            } else if entry.metadata.is_file() {
                found.push(describe(key, &entry.metadata)?);
            }
        }
    }
    found.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(found)
}

/// Lists the objects directly inside the folder `prefix` of `root`, sorted by key.
pub(super) fn files(root: &Path, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
    let mut found = Vec::new();
    for Entry { name, metadata, .. } in entries(root, prefix)? {
        let key = join(prefix, &name);
        if metadata.is_file() && key.len() <= MAX_KEY_BYTES {
            found.push(describe(key, &metadata)?);
        }
    }
    found.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(found)
}

/// Lists the folders directly inside the folder `prefix` of `root`, sorted.
pub(super) fn folders(root: &Path, prefix: &str) -> Result<Vec<String>, Error> {
    let mut names: Vec<String> = entries(root, prefix)?
        .into_iter()
        .filter(|entry| entry.metadata.is_dir())
        .map(|entry| entry.name)
        .collect();
    names.sort();
    Ok(names)
}

/// Removes the files of dead writers under the folder `prefix` of `root`, and returns how many.
///
/// Folders that are empty then go too.
pub(super) fn sweep(root: &Path, prefix: &str) -> Result<u64, Error> {
    let mut removed = 0;
    let mut pending = vec![prefix.to_owned()];
    while let Some(prefix) = pending.pop() {
        let inside = entries(root, &prefix)?.into_iter();
        let inside = inside.filter(Entry::is_folder_here);
        pending.extend(inside.map(|entry| join(&prefix, &entry.name)));
        let folder = root.join(&prefix);
        match temp::sweep(&folder) {
            Ok(count) => removed += count,
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(Error::from_io(&prefix, "sweep", error)),
        }
        folder::remove_empty(root, &folder);
    }
    Ok(removed)
}

/// Describes the file under `key`.
pub(super) fn describe(key: String, metadata: &Metadata) -> Result<ObjectMeta, Error> {
    match metadata.modified() {
        Ok(modified) => Ok(ObjectMeta {
            key,
            len: metadata.len(),
            modified,
        }),
        Err(error) => Err(Error::from_io(&key, "describe", error)),
    }
}

/// Whether this error only says that there is nothing of that name.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The entries of a folder whose names can be in a key; none if there is no such folder.
fn entries(root: &Path, prefix: &str) -> Result<Vec<Entry>, Error> {
    let failed = |error| Error::from_io(prefix, "list", error);
    let entries = match std::fs::read_dir(root.join(prefix)) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        if let Some(entry) = entry.and_then(look_at).map_err(failed)? {
            found.push(entry);
        }
    }
    Ok(found)
}

fn look_at(entry: DirEntry) -> io::Result<Option<Entry>> {
    let Ok(name) = entry.file_name().into_string() else {
        return Ok(None);
    };
    if !key::is_segment(&name) {
        return Ok(None);
    }
    let is_link = entry.file_type()?.is_symlink();
    match entry.path().metadata() {
        Ok(metadata) => Ok(Some(Entry {
            name,
            metadata,
            is_link,
        })),
        // It has just been removed, or it is a link to nowhere or to itself.
        Err(error) if is_absent(&error) || is_link => Ok(None),
        Err(error) => Err(error),
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        return name.to_owned();
    }
    format!("{folder}/{name}")
}
