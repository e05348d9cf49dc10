//! Folders that appear with their first object, and go with their last.

use std::io;
use std::path::Path;

use super::{system, temp};
use crate::PutMode;

/// Makes `folder` and its missing parents, each durable in the one above.
///
/// Others may remove them as empty at any moment, also before this returns.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    let created = match std::fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(folder.parent().ok_or(error)?)?;
            std::fs::create_dir(folder)
        }
        other => other,
    };
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match folder.metadata() {
            Ok(found) if !found.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
            _ => Ok(()),
        },
        other => other.and_then(|()| sync_parent(folder)),
    }
}

/// Moves a file to its new place, durably, and removes the folders that are empty then.
pub(super) fn move_file(
    root: &Path,
    source: &Path,
    target: &Path,
    mode: PutMode,
) -> io::Result<()> {
    let [left, entered] = [source, target].map(|path| path.parent().unwrap_or(root));
    make(entered)?;
    match mode {
        PutMode::Create => system::rename_new(source, target)?,
        PutMode::Replace => std::fs::rename(source, target)?,
    }
    // The new name first: a machine that dies in between must find one of the two.
    sync_up(root, entered)?;
    system::sync_folder(left)?;
    remove_empty(root, left);
    Ok(())
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
    path.parent().map_or(Ok(()), system::sync_folder)
}
