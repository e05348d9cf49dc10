//! From parts to a commit, with no one in charge.
//!
//! Writers put their parts; whoever sees all of them joins them into the manifest and creates `COMMIT`, create-only. Normally that is
//! writer 0. If it died, any other does the same and gets the same bytes, so a race is harmless: the store lets one win. On a store that
//! cannot tell who was first, writer 0 alone commits.

use crate::Error;
use crate::clock::Clock;
use crate::error::{StoreContext, chain};
use crate::hf_index;
use crate::manifest::Manifest;
use crate::names::{AttemptKeys, commit_key, step_folder};
use crate::part::{ReadPart, read_head};
use crate::retention::take_back;
use crate::standing::{Standing, committed_attempt, deleted_attempt, stands};
use crate::workers::{asking, gather};
use cairn_store::{PutMode, Store};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a writer that waits for others rests between two looks, at first and after a while.
const SHORT_PAUSE: Duration = Duration::from_millis(100);
const LONG_PAUSE: Duration = Duration::from_secs(2);

/// How a commit treats a step that is committed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfCommitted {
    /// Leave the committed step alone and refuse.
    #[default]
    Refuse,
    /// Put this attempt in its place; the old one stays whole until then.
    Replace,
}

/// Which committed attempt at its step a save takes the place of by itself, because its line was abandoned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Supersedes {
    #[default]
    Nothing,
    /// This one.
    Attempt(String),
    /// The one that writer 0's part names, if any: writer 0 knows the lines of the run.
    Undecided,
}

/// How long a writer waits for the others, and by which clock.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    pub(crate) clock: Arc<dyn Clock>,
    /// Until it gives up.
    pub(crate) timeout: Duration,
    /// Until it commits in the place of writer 0.
    pub(crate) takeover: Duration,
    /// Whether a commit that fails is the end of the attempt, which is told to the others.
    pub(crate) is_final: bool,
}

/// One save, as its committers see it.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) step: u64,
    pub(crate) name: String,
    pub(crate) world: usize,
    pub(crate) if_committed: IfCommitted,
    /// The launch that saves, if that is known.
    pub(crate) launch: Option<String>,
    pub(crate) supersedes: Supersedes,
}

/// What the first writer that gave up leaves for the others.
#[derive(Debug, Serialize, Deserialize)]
struct Failure {
    writer: usize,
    message: String,
    /// Whether it passed the step over on purpose.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    skipped: bool,
    /// The attempt that holds the step, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taken: Option<String>,
}

impl Attempt {
    pub(crate) fn keys(&self) -> AttemptKeys {
        AttemptKeys::new(self.step, &self.name)
    }

    /// Refuses a step that is committed already, unless it is to be replaced.
    pub(crate) fn refuse_committed(&self, store: &dyn Store) -> Result<(), Error> {
        match self.committed(store)? {
            Some(found) if self.if_committed == IfCommitted::Refuse && !self.supersedes(&found) => {
                Err(Error::StepTaken {
                    step: self.step,
                    attempt: found.attempt,
                })
            }
            _ => Ok(()),
        }
    }

    /// Waits until this attempt is committed, committing it when it is complete.
    ///
    /// Writer 0 looks for parts all the time; the others trust it for a while and then do it themselves, if the store lets one win.
    pub(crate) fn wait(
        &self,
        store: &dyn Store,
        writer: usize,
        patience: &Patience,
    ) -> Result<(), Error> {
        let clock = patience.clock.as_ref();
        let start = clock.elapsed();
        let mut pause = Duration::from_millis(1);
        loop {
            if self.is_safe(store)? {
                return Ok(());
            }
            self.check_failure(store)?;
            let waited = clock.elapsed().saturating_sub(start);
            let is_late = waited >= patience.timeout;
            if writer == 0 || waited >= patience.takeover || is_late {
                let mut missing = self.missing_writers(store)?;
                if missing.is_empty() {
                    if self.may_commit(store, writer)? {
                        let committed = self.commit(store);
                        return committed.inspect_err(|error| {
                            if patience.is_final {
                                self.report_failure(store, writer, error);
                            }
                        });
                    }
                    missing.push(0);
                }
                if is_late {
                    let error = Error::WritersMissing {
                        step: self.step,
                        missing,
                        waited,
                    };
                    if patience.is_final {
                        // A writer that comes later must not complete it: by then the state may be another one.
                        self.report_failure(store, writer, &error);
                    }
                    return Err(error);
                }
            }
            clock.sleep(pause);
            // Whoever waits long looks less often: on an object store every look is a request.
            pause = (pause * 2).min((waited / 20).clamp(SHORT_PAUSE, LONG_PAUSE));
        }
    }

    /// Whether this attempt is committed, and stays so if the power goes now.
    pub(crate) fn is_safe(&self, store: &dyn Store) -> Result<bool, Error> {
        Ok(self.is_committed(store)? && self.is_settled(store)?)
    }

    /// Makes durable a `COMMIT` that another writer has put: it is seen before its name is. Whether it is still there: it may have gone
    /// with the machine of who put it.
    fn is_settled(&self, store: &dyn Store) -> Result<bool, Error> {
        let folder = step_folder(self.step);
        let settled = store.settle(&folder);
        settled.doing(|| format!("make `{folder}` durable"))?;
        stands(store, self.step)
    }

    /// Whether a writer that sees all parts commits: any does if one of them wins, else the first.
    fn may_commit(&self, store: &dyn Store, writer: usize) -> Result<bool, Error> {
        let has_one_winner = || store.has_one_winner();
        Ok(writer == 0 || has_one_winner().doing(|| format!("examine `{}`", store.url()))?)
    }

    /// Joins all parts and publishes the manifest.
    ///
    /// # Crash safety
    /// `COMMIT` is one small object, put atomically: a reader finds it whole or not at all.
    pub(crate) fn commit(&self, store: &dyn Store) -> Result<(), Error> {
        let keys = self.keys();
        let parts = gather(self.world, asking(store.is_far()), |writer| {
            read_head(store, &keys, writer)
        })?;
        let files = self.files(&parts);
        let superseded = parts.first().and_then(|read| read.part.replaces.clone());
        let manifest = Manifest::join(parts)?;
        check_bases(store, &manifest)?;
        if manifest.is_plain() {
            hf_index::publish(store, &keys, &manifest.layout)?;
        }
        // A part is seen before its name is durable; from here on it must not be lost.
        store
            .settle(&keys.folder)
            .doing(|| format!("make the parts in `{}` durable", keys.folder))?;
        // It may be lost by now, with the machine of its writer. And a part outlives its data if its writer stood still before it put
        // it, while others committed the attempt and deleted it.
        if let Some(key) = missing_keys(store, &keys.folder, &files)?.pop() {
            return Err(Error::damaged(key, "it is missing"));
        }
        // The last look comes when all parts are there. Who sees another attempt after `COMMIT` is put is too late: others count on it.
        if self.is_safe(store)? {
            return Ok(());
        }
        let mode = self.mode(store, superseded.as_deref())?;
        let key = commit_key(self.step);
        match store.put(&key, &manifest.encode(), mode) {
            // Somebody was faster: fine if it was this attempt.
            Err(cairn_store::Error::AlreadyExists { .. }) => match self.is_safe(store)? {
                true => Ok(()),
                false => Err(self.taken(store)),
            },
            result => {
                result.doing(|| format!("commit step {}", self.step))?;
                self.check_kept(store, &files)
            }
        }
    }

    /// Whether `COMMIT` is created or replaced. `superseded` is the attempt that writer 0's part takes the place of.
    fn mode(&self, store: &dyn Store, superseded: Option<&str>) -> Result<PutMode, Error> {
        if self.if_committed == IfCommitted::Replace {
            return Ok(PutMode::Replace);
        }
        let Some(superseded) = superseded else {
            return Ok(PutMode::Create);
        };
        let found = Standing::read(store, self.step)?;
        let found = found.map(|standing| standing.manifest()).transpose()?;
        Ok(match found.is_some_and(|found| found.is_of(superseded)) {
            true => PutMode::Replace,
            false => PutMode::Create,
        })
    }

    /// The parts of all writers, and the data files that these name.
    fn files(&self, parts: &[ReadPart]) -> Vec<String> {
        let keys = self.keys();
        let data = parts.iter().filter_map(|part| part.part.file.as_ref());
        // A delta without anything new has none.
        let data = data.filter(|file| file.own_bytes() > 0);
        let data = data.map(|file| format!("{}/{}", keys.folder, file.name));
        let parts = (0..self.world).map(|writer| keys.part(writer));
        parts.chain(data).collect()
    }

    /// Takes `COMMIT` back if the files went while it was put.
    ///
    /// Whoever stands still long enough in that moment may wake up when others have committed the step and deleted it, or have taken the
    /// attempt for abandoned. A pruning marks what it deletes first and takes the mark away last, so one of the two signs is there.
    fn check_kept(&self, store: &dyn Store, files: &[String]) -> Result<(), Error> {
        let folder = self.keys().folder;
        let is_whole = || Ok::<_, Error>(missing_keys(store, &folder, files)?.is_empty());
        if !self.is_being_deleted(store)? && is_whole()? {
            return Ok(());
        }
        // Not its key, whatever is there by now: it may have been replaced.
        take_back(store, self.step, &self.name)?;
        Err(Error::Incomplete {
            step: self.step,
            reason: format!("attempt `{}` was deleted while it was committed", self.name),
        })
    }

    /// Whether a pruning is about to delete this attempt.
    fn is_being_deleted(&self, store: &dyn Store) -> Result<bool, Error> {
        match deleted_attempt(store, self.step) {
            // No pruning goes by a mark that cannot be read.
            Err(error) if error.is_damage() => Ok(false),
            attempt => Ok(attempt?.as_ref() == Some(&self.name)),
        }
    }

    /// The manifest that stands. A damaged one that is to be replaced says nothing.
    fn committed(&self, store: &dyn Store) -> Result<Option<Manifest>, Error> {
        let standing = Standing::read(store, self.step)?;
        match standing.map(|standing| standing.manifest()).transpose() {
            Err(error) if error.is_damage() && self.if_committed == IfCommitted::Replace => {
                Ok(None)
            }
            result => result,
        }
    }

    /// Whether `COMMIT` names this attempt, or one that has its state.
    pub(crate) fn is_committed(&self, store: &dyn Store) -> Result<bool, Error> {
        match self.committed(store)? {
            None => Ok(false),
            Some(found) if found.is_of(&self.name) => Ok(true),
            Some(_) if self.if_committed == IfCommitted::Replace => Ok(false),
            Some(found) if self.supersedes(&found) => Ok(false),
            Some(_) => Err(self.taken(store)),
        }
    }

    /// Whether this attempt may take the place of a committed one without being told to.
    fn supersedes(&self, found: &Manifest) -> bool {
        match &self.supersedes {
            Supersedes::Nothing => false,
            Supersedes::Attempt(name) => found.is_of(name),
            Supersedes::Undecided => found.launch != self.launch,
        }
    }

    fn taken(&self, store: &dyn Store) -> Error {
        let attempt = committed_attempt(store, self.step);
        Error::StepTaken {
            step: self.step,
            attempt: attempt.ok().flatten().unwrap_or_else(|| "unknown".into()),
        }
    }

    /// Whether all parts are there, also if a listing lags behind.
    pub(crate) fn is_complete(&self, store: &dyn Store) -> Result<bool, Error> {
        for writer in self.missing_writers(store)? {
            let key = self.keys().part(writer);
            let head = store.head(&key).doing(|| format!("look for `{key}`"))?;
            if head.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The writers whose parts are not there.
    pub(crate) fn missing_writers(&self, store: &dyn Store) -> Result<Vec<usize>, Error> {
        let keys = self.keys();
        let listing = store
            .list(&keys.folder)
            .doing(|| format!("list `{}`", keys.folder))?;
        let mut here = vec![false; self.world];
        for meta in &listing {
            let writer = keys.writer_of_part(&meta.key);
            if let Some(seen) = writer.and_then(|writer| here.get_mut(writer)) {
                *seen = true;
            }
        }
        let missing = here.iter().enumerate().filter(|(_, seen)| !**seen);
        Ok(missing.map(|(writer, _)| writer).collect())
    }

    fn check_failure(&self, store: &dyn Store) -> Result<(), Error> {
        let key = self.keys().failed();
        let bytes = match store.get(&key) {
            Err(cairn_store::Error::NotFound { .. }) => return Ok(()),
            result => result.doing(|| format!("read `{key}`"))?,
        };
        let failure = serde_json::from_slice(&bytes).unwrap_or_else(|_| Failure {
            writer: 0,
            message: "for a reason that cannot be read".into(),
            skipped: false,
            taken: None,
        });
        if let Some(attempt) = failure.taken {
            let step = self.step;
            return Err(Error::StepTaken { step, attempt });
        }
        if failure.skipped {
            let (step, reason) = (self.step, failure.message);
            return Err(Error::Skipped { step, reason });
        }
        Err(Error::WriterFailed {
            step: self.step,
            writer: failure.writer,
            message: failure.message,
        })
    }

    /// Tells the other writers that this one gave up. Best effort: on a full disk they find out by their deadline.
    pub(crate) fn report_failure(&self, store: &dyn Store, writer: usize, error: &Error) {
        let taken = match error {
            // Where nothing can be superseded, the others see that for themselves.
            Error::StepTaken { .. } if self.supersedes == Supersedes::Nothing => return,
            Error::StepTaken { attempt, .. } => Some(attempt.clone()),
            _ => None,
        };
        let failure = Failure {
            writer,
            message: chain(error),
            skipped: matches!(error, Error::Skipped { .. }),
            taken,
        };
        let bytes = serde_json::to_vec(&failure).expect("a failure is JSON");
        if let Err(error) = store.put(&self.keys().failed(), &bytes, PutMode::Create) {
            tracing::debug!(%error, "could not leave a note of the failure");
        }
    }
}

/// Refuses a step that refers to files that are not there. Pins keep pruners away from them, but not everybody.
fn check_bases(store: &dyn Store, manifest: &Manifest) -> Result<(), Error> {
    let mut missing = Vec::new();
    for (folder, files) in manifest.delta.iter().flat_map(|delta| &delta.bases) {
        let keys: Vec<String> = files
            .iter()
            .map(|file| format!("{folder}/{file}"))
            .collect();
        missing.extend(missing_keys(store, folder, &keys)?);
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Error::BasesGone {
            step: manifest.step,
            missing,
        }),
    }
}

/// Those of some files of a folder that are not there.
fn missing_keys(store: &dyn Store, folder: &str, keys: &[String]) -> Result<Vec<String>, Error> {
    let listing = store
        .list_files(folder)
        .doing(|| format!("list `{folder}`"))?;
    let here: BTreeSet<&str> = listing.iter().map(|meta| meta.key.as_str()).collect();
    let mut missing = Vec::new();
    for key in keys.iter().filter(|key| !here.contains(key.as_str())) {
        // Listings may lag behind.
        let head = store.head(key).doing(|| format!("look for `{key}`"))?;
        missing.extend(head.is_none().then(|| key.clone()));
    }
    Ok(missing)
}
