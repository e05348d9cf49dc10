//! Folders that appear with their first object, and go with their last.

use std::io;
use std::path::Path;

use super::{system, temp};

/// Makes `folder` and its missing parents, each durable in the one above.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Ok(()) => sync_parent(folder),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if folder.is_dir() {
                return Ok(());
            }
            Err(io::ErrorKind::NotADirectory.into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = folder.parent().ok_or(error)?;
            make(parent)?;
            match std::fs::create_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                other => other.and_then(|()| sync_parent(folder)),
            }
        }
        Err(error) => Err(error),
    }
}

/// Makes the names in `folder`, and in the folders above it up to `root`, durable.
///
/// The folders above may have been made by someone who has not synced them yet.
pub(super) fn sync_up(root: &Path, folder: &Path) -> io::Result<()> {
    up_to(root, folder).try_for_each(system::sync_folder)
}

/// Removes `folder` if it is empty, then its parents likewise, but never `root`.
///
/// Files of dead writers do not count, and go with it. A folder that cannot be removed stays: it is
/// in nobody's way.
pub(super) fn remove_empty(root: &Path, folder: &Path) {
    for folder in up_to(root, folder).take_while(|folder| *folder != root) {
        let _ = temp::sweep_alone(folder);
        match std::fs::remove_dir(folder) {
            Ok(()) => {
                let _ = sync_parent(folder);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return,
        }
    }
}

/// `folder`, its parent, and so on, ending with `root`.
fn up_to<'path>(root: &'path Path, folder: &'path Path) -> impl Iterator<Item = &'path Path> {
    folder
        .ancestors()
        .take_while(move |ancestor| ancestor.starts_with(root))
}

/// Makes the name of `path`, or its absence, durable.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent().map(system::sync_folder) {
        // Someone removed the parent meanwhile, so there is no name left to keep.
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Some(other) => other,
        None => Ok(()),
    }
}
