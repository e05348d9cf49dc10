//! What the processes of a world share: files and folders that forget what was not synced.
//!
//! The rules are those of POSIX and no more: bytes are durable when their file was synced, and a name is
//! durable when its folder was. Until then a loss of power may keep any of it, in any order, and tear a file
//! between sectors. What one process made is visible to all others at once, durable or not.

use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a disk writes at once, in bytes.
const SECTOR_BYTES: usize = 512;

/// How the names of unpublished files begin.
pub(crate) const TEMP: &str = ".tmp-";

/// A process, counted from 0.
pub(crate) type ProcessId = usize;

type FileId = u64;

/// What becomes of things that were not synced when the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None of it is found again.
    All,
    /// Names are kept, the bytes of files are not.
    Bytes,
    /// Each change of a name and each sector is kept or lost on its own.
    Some,
}

/// Files by path, as processes see them and as a loss of power leaves them.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    names: BTreeMap<String, FileId>,
    files: BTreeMap<FileId, File>,
    /// What a loss of power leaves of the names.
    stable: BTreeMap<String, FileId>,
    stable_folders: BTreeSet<String>,
    /// Changes of names whose folder was not synced since, the oldest first.
    changes: Vec<Change>,
    next_file: FileId,
    /// What names meant before, and when that changed: what a listing that lags behind shows.
    before: BTreeMap<String, (Duration, Option<FileId>)>,
}

#[derive(Debug, Clone)]
struct File {
    bytes: Vec<u8>,
    /// The bytes as they were synced, if they ever were.
    synced: Option<Vec<u8>>,
    writer: ProcessId,
    modified: Duration,
}

#[derive(Debug)]
struct Change {
    by: ProcessId,
    folder: String,
    /// The name that goes.
    removed: Option<String>,
    /// The name that comes, or another file under the name.
    set: Option<(String, FileId)>,
}

/// What a listing tells of a file.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) path: String,
    pub(crate) len: u64,
    pub(crate) modified: Duration,
}

/// The folder a path lies in; `""` is the root.
pub(crate) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A folder, the one it is in, and so on up to the root.
fn folders_up(folder: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(folder), |folder| {
        (!folder.is_empty()).then(|| folder_of(folder))
    })
}

impl Disk {
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.names.contains_key(path)
    }

    pub(crate) fn read(&self, path: &str) -> Option<&[u8]> {
        let file = self.names.get(path)?;
        Some(&self.files[file].bytes)
    }

    /// Makes an empty file.
    pub(crate) fn create(&mut self, path: &str, by: ProcessId, now: Duration) {
        let file = File {
            bytes: Vec::new(),
            synced: None,
            writer: by,
            modified: now,
        };
        let id = self.next_file;
        self.next_file += 1;
        self.files.insert(id, file);
        self.change(by, now, None, Some((path.to_string(), id)));
    }

    /// Writes into a file, which grows as needed. Durable when it is synced.
    pub(crate) fn write(&mut self, path: &str, offset: usize, bytes: &[u8], now: Duration) {
        if let Some(file) = self.file_mut(path) {
            let end = offset + bytes.len();
            file.bytes.resize(end.max(file.bytes.len()), 0);
            file.bytes[offset..end].copy_from_slice(bytes);
            file.modified = now;
        }
    }

    /// Makes the bytes of a file durable, not its name.
    pub(crate) fn sync(&mut self, path: &str) {
        if let Some(file) = self.file_mut(path) {
            file.synced = Some(file.bytes.clone());
        }
    }

    /// Gives a file another name in one step, whatever had it before; says whether there was the file.
    pub(crate) fn rename(&mut self, path: &str, to: &str, by: ProcessId, now: Duration) -> bool {
        let id = self.names.get(path).copied();
        if let Some(id) = id {
            self.change(by, now, Some(path), Some((to.to_string(), id)));
        }
        id.is_some()
    }

    pub(crate) fn remove(&mut self, path: &str, by: ProcessId, now: Duration) {
        if self.exists(path) {
            self.change(by, now, Some(path), None);
        }
    }

    /// Makes the names in a folder durable, not those in the folders within.
    pub(crate) fn sync_folder(&mut self, folder: &str) {
        let mut rest = Vec::new();
        for change in std::mem::take(&mut self.changes) {
            match change.folder == folder {
                true => apply(&mut self.stable, change),
                false => rest.push(change),
            }
        }
        self.changes = rest;
        // The folders in it are names, too.
        let prefix = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        for path in self.names.keys() {
            if let Some((inner, _)) = path
                .strip_prefix(&prefix)
                .and_then(|rest| rest.split_once('/'))
            {
                self.stable_folders.insert(format!("{prefix}{inner}"));
            }
        }
    }

    /// Syncs a folder, the one it is in, and so on.
    pub(crate) fn sync_up(&mut self, folder: &str) {
        folders_up(folder).for_each(|folder| self.sync_folder(folder));
    }

    /// Everything under a folder, unpublished files too, as it is or, if `lag` says so, as some of it was a while ago.
    pub(crate) fn list(&self, folder: &str, mut lag: impl FnMut(Duration) -> bool) -> Vec<Listed> {
        let prefix = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        let mut seen: BTreeMap<&str, Option<FileId>> = self
            .names
            .iter()
            .map(|(path, id)| (path.as_str(), Some(*id)))
            .collect();
        for (path, (when, old)) in &self.before {
            if lag(*when) {
                seen.insert(path, *old);
            }
        }
        let inside = seen
            .into_iter()
            .filter(|(path, _)| path.starts_with(&prefix));
        let found = inside.filter_map(|(path, id)| Some((path, self.files.get(&id?)?)));
        found
            .map(|(path, file)| Listed {
                path: path.to_string(),
                len: file.bytes.len() as u64,
                modified: file.modified,
            })
            .collect()
    }

    /// The unpublished files of processes that `is_dead` names.
    pub(crate) fn leftovers(&self, is_dead: impl Fn(ProcessId) -> bool) -> Vec<String> {
        let temps = self.names.iter().filter(|(path, _)| is_temp(path));
        temps
            .filter(|(_, id)| is_dead(self.files[id].writer))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Flips a bit of a published file, on the platter and in every cache, and names the file.
    pub(crate) fn rot(&mut self, random: &mut Random) -> Option<String> {
        let published = self.names.iter().filter(|(path, id)| {
            !is_temp(path) && !path.ends_with(".timeline") && !self.files[id].bytes.is_empty()
        });
        let published: Vec<(String, FileId)> =
            published.map(|(path, id)| (path.clone(), *id)).collect();
        if published.is_empty() {
            return None;
        }
        let (path, id) = published[random.index(published.len())].clone();
        let file = self.files.get_mut(&id)?;
        let (byte, bit) = (random.index(file.bytes.len()), random.below(8));
        file.bytes[byte] ^= 1 << bit;
        if let Some(synced) = file.synced.as_mut().and_then(|synced| synced.get_mut(byte)) {
            *synced ^= 1 << bit;
        }
        Some(path)
    }

    /// The power goes, for what one process has not synced or, without a process, for everything.
    pub(crate) fn lose(&mut self, of: Option<ProcessId>, loss: Loss, random: &mut Random) {
        let is_lost = |by: ProcessId| of.is_none_or(|of| of == by);
        let mut rest = Vec::new();
        for change in std::mem::take(&mut self.changes) {
            let kept = match loss {
                Loss::All => false,
                Loss::Bytes => true,
                Loss::Some => random.chance(50),
            };
            match (is_lost(change.by), kept) {
                (false, _) => rest.push(change),
                (true, true) => {
                    let folders = folders_up(&change.folder).map(str::to_string);
                    self.stable_folders.extend(folders);
                    apply(&mut self.stable, change);
                }
                (true, false) => {}
            }
        }
        self.changes = rest;
        for file in self.files.values_mut().filter(|file| is_lost(file.writer)) {
            file.tear(loss, random);
        }
        self.forget();
    }

    /// Brings what processes see back to what is durable and what others have not synced yet.
    fn forget(&mut self) {
        let pending = self.changes.iter().map(|change| change.folder.as_str());
        let mut folders: BTreeSet<&str> = pending.flat_map(folders_up).collect();
        folders.extend(self.stable_folders.iter().map(String::as_str));
        // A folder whose name is lost takes what is in it along.
        let is_found = |path: &str| {
            folders_up(folder_of(path)).all(|folder| folder.is_empty() || folders.contains(folder))
        };
        let mut names = self.stable.clone();
        for change in &self.changes {
            if let Some(removed) = &change.removed {
                names.remove(removed);
            }
            if let Some((path, id)) = &change.set {
                names.insert(path.clone(), *id);
            }
        }
        names.retain(|path, _| is_found(path));
        self.names = names;
        self.before.clear();
    }

    fn change(
        &mut self,
        by: ProcessId,
        now: Duration,
        removed: Option<&str>,
        set: Option<(String, FileId)>,
    ) {
        let touched = set.as_ref().map(|(path, _)| path.as_str());
        for path in removed.into_iter().chain(touched) {
            let old = self.names.get(path).copied();
            self.before.insert(path.to_string(), (now, old));
        }
        let folder = folder_of(touched.or(removed).unwrap_or_default()).to_string();
        if let Some(removed) = removed {
            self.names.remove(removed);
        }
        if let Some((path, id)) = &set {
            self.names.insert(path.clone(), *id);
        }
        self.changes.push(Change {
            by,
            folder,
            removed: removed.map(str::to_string),
            set,
        });
    }

    fn file_mut(&mut self, path: &str) -> Option<&mut File> {
        self.files.get_mut(self.names.get(path)?)
    }
}

impl File {
    /// Loses what was not synced: sectors go back to what they were, or to zeros.
    fn tear(&mut self, loss: Loss, random: &mut Random) {
        let synced = self.synced.clone().unwrap_or_default();
        if self.bytes == synced {
            return;
        }
        let mut left = self.bytes.clone();
        for (index, sector) in left.chunks_mut(SECTOR_BYTES).enumerate() {
            if loss == Loss::Some && random.chance(50) {
                continue;
            }
            let old = synced.get(index * SECTOR_BYTES..).unwrap_or_default();
            for (at, byte) in sector.iter_mut().enumerate() {
                *byte = old.get(at).copied().unwrap_or(0);
            }
        }
        if self.synced.is_none() && random.chance(50) {
            left.truncate(random.index(left.len() + 1));
        }
        self.synced = Some(left.clone());
        self.bytes = left;
    }
}

/// Whether a path is that of an unpublished file.
pub(crate) fn is_temp(path: &str) -> bool {
    path.rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with(TEMP))
}

fn apply(names: &mut BTreeMap<String, FileId>, change: Change) {
    if let Some(removed) = change.removed {
        names.remove(&removed);
    }
    if let Some((path, id)) = change.set {
        names.insert(path, id);
    }
}
