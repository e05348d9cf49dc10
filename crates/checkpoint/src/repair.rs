//! Mends a damaged step from a copy of it.
//!
//! The manifest names every part by its digest, a part its blocks by their checksums: what is whole here stays, and only blocks that are
//! not are taken from the copy, if they are whole there. So two damaged copies can make a whole one.

mod file;

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::checksum::sha256_hex;
use crate::error::StoreContext;
use crate::error::chain;
use crate::hf_index;
use crate::manifest::{DIGEST_DIGITS, Manifest};
use crate::names::commit_key;
use crate::part::read_head;
use crate::verify::is_deleted;
use cairn_store::{PutMode, Store};
use serde::Serialize;
use std::sync::Arc;

/// What became of each file of a step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RepairReport {
    /// The files, in the order they were looked at.
    pub files: Vec<RepairedFile>,
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairedFile {
    /// Its key in the run.
    pub file: String,
    /// How it is now.
    pub state: FileState,
    /// The bytes that were taken from the copy.
    pub replaced_bytes: u64,
    /// What was wrong with it, if anything was.
    pub problem: Option<String>,
}

/// How a file is after a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// As it was written; nothing was done.
    Whole,
    /// It was damaged or missing, and is as it was written; in a dry run, it would be.
    Repaired,
    /// It is damaged or missing, and so is the copy. It was left as it is.
    Lost,
}

/// Mends step `step` of the run in `store` from the same step of the run in `copy`.
///
/// With `dry_run` everything is read and compared, and nothing is written.
///
/// # Crash safety
/// A file is replaced in one move when all its bytes are written; `COMMIT` comes last. A repair that was cut short is begun again.
///
/// # Errors
/// [`Error::NotACopy`] if the copy is not of the same attempt; if a store fails. What cannot be mended is in the report.
pub fn repair(
    store: &Arc<dyn Store>,
    step: u64,
    copy: &Arc<dyn Store>,
    dry_run: bool,
    progress: &dyn Fn(u64),
) -> Result<RepairReport, Error> {
    let copied = Checkpoint::open(copy.clone(), step)?;
    let commit = compare_commits(store.as_ref(), &copied)?;
    let here = Checkpoint::with_manifest(store.clone(), copied.manifest().clone());
    let mut mending = Mending {
        here,
        copied,
        dry_run,
        progress,
        report: RepairReport::default(),
    };
    for writer in 0..mending.here.manifest().writers() {
        mending.part(writer)?;
        mending.data(writer)?;
    }
    mending.assets()?;
    mending.commit(commit)?;
    Ok(mending.report)
}

impl RepairReport {
    /// Whether every file is as it was written, or would be after a repair.
    pub fn is_whole(&self) -> bool {
        self.files.iter().all(|file| file.state != FileState::Lost)
    }
}

/// A repair on its way.
struct Mending<'a> {
    here: Checkpoint,
    copied: Checkpoint,
    dry_run: bool,
    progress: &'a dyn Fn(u64),
    report: RepairReport,
}

impl Mending<'_> {
    fn part(&mut self, writer: usize) -> Result<(), Error> {
        let key = self.here.keys().part(writer);
        let Some(problem) = damage_of(self.here.read_part(writer).map(drop))? else {
            self.whole(key);
            return Ok(());
        };
        if damage_of(self.copied.read_part(writer).map(drop))?.is_some() {
            self.lost(key, problem);
            return Ok(());
        }
        let bytes = get(self.copied.store().as_ref(), &key)?;
        self.replace(key, &bytes, problem)
    }

    fn assets(&mut self) -> Result<(), Error> {
        let assets = self.here.manifest().assets.clone();
        for (name, entry) in assets {
            let key = self.here.keys().asset(&name);
            let look = |store: &Arc<dyn Store>| {
                let bytes = get(store.as_ref(), &key)?;
                match sha256_hex(&bytes) == entry.sha256 {
                    true => Ok(bytes),
                    false => Err(Error::damaged(key.as_str(), "its bytes are other ones")),
                }
            };
            let here = look(self.here.store());
            let Some(problem) = damage_of(here.map(drop))? else {
                self.whole(key);
                continue;
            };
            match look(self.copied.store()) {
                Ok(bytes) => self.replace(key.clone(), &bytes, problem)?,
                Err(error) if error.is_damage() => self.lost(key.clone(), problem),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Puts back what makes it a step, when everything else is.
    fn commit(&mut self, damaged: Option<String>) -> Result<(), Error> {
        let key = commit_key(self.here.step());
        if !self.report.is_whole() {
            return Ok(());
        }
        if !self.dry_run && self.here.manifest().is_plain() {
            let manifest = self.here.manifest();
            hf_index::publish(
                self.here.store().as_ref(),
                self.here.keys(),
                &manifest.layout,
            )?;
        }
        match damaged {
            None => self.whole(key),
            Some(problem) => {
                let bytes = get(self.copied.store().as_ref(), &key)?;
                self.replace(key, &bytes, problem)?;
            }
        }
        Ok(())
    }

    fn replace(&mut self, key: String, bytes: &[u8], problem: String) -> Result<(), Error> {
        if !self.dry_run {
            let put = self.here.store().put(&key, bytes, PutMode::Replace);
            put.doing(|| format!("write `{key}`"))?;
        }
        self.repaired(key, bytes.len() as u64, problem);
        Ok(())
    }

    fn whole(&mut self, file: String) {
        self.add(file, FileState::Whole, 0, None);
    }

    fn repaired(&mut self, file: String, replaced_bytes: u64, problem: String) {
        self.add(file, FileState::Repaired, replaced_bytes, Some(problem));
    }

    fn lost(&mut self, file: String, problem: String) {
        self.add(file, FileState::Lost, 0, Some(problem));
    }

    fn add(
        &mut self,
        file: String,
        state: FileState,
        replaced_bytes: u64,
        problem: Option<String>,
    ) {
        self.report.files.push(RepairedFile {
            file,
            state,
            replaced_bytes,
            problem,
        });
    }
}

/// What is damaged, if it is; anything else that is wrong ends the repair.
fn damage_of(result: Result<(), Error>) -> Result<Option<String>, Error> {
    match result {
        Ok(()) => Ok(None),
        Err(error) if error.is_damage() => Ok(Some(chain(&error))),
        Err(error) => Err(error),
    }
}

fn get(store: &dyn Store, key: &str) -> Result<Vec<u8>, Error> {
    store.get(key).doing(|| format!("read `{key}`"))
}

/// Makes sure that both are of one attempt. Returns what is wrong with `COMMIT` here, if something is.
fn compare_commits(store: &dyn Store, copied: &Checkpoint) -> Result<Option<String>, Error> {
    let step = copied.step();
    let refused = |reason: String| Error::NotACopy {
        url: copied.store().url(),
        step,
        reason,
    };
    let key = commit_key(step);
    let found = get(store, &key).and_then(|bytes| {
        let manifest = Manifest::decode(&key, &bytes)?;
        Ok((bytes, manifest))
    });
    match found {
        Ok((bytes, manifest)) => {
            let same = bytes == get(copied.store().as_ref(), &key)?;
            let (here, there) = (&manifest.attempt, &copied.manifest().attempt);
            let reason = || format!("its attempt is `{there}`, here it is `{here}`");
            same.then_some(None).ok_or_else(|| refused(reason()))
        }
        Err(error) if error.is_damage() => {
            if is_deleted(store, step)? {
                return Err(Error::Deleted { step });
            }
            parts_agree(store, copied).map_err(refused)?;
            Ok(Some(chain(&error)))
        }
        Err(error) => Err(error),
    }
}

/// Without a `COMMIT` here, parts that are whole tell whether this is the same attempt.
fn parts_agree(store: &dyn Store, copied: &Checkpoint) -> Result<(), String> {
    let expected = copied.manifest().parts.iter().enumerate();
    let mut known = 0;
    for (writer, digest) in expected {
        match read_head(store, copied.keys(), writer) {
            Ok(part) if part.digest[..DIGEST_DIGITS] == *digest => known += 1,
            Ok(_) => return Err(format!("writer {writer} wrote another part here")),
            Err(_) => {}
        }
    }
    match known {
        0 => Err("nothing here shows that it is the same attempt".into()),
        _ => Ok(()),
    }
}
