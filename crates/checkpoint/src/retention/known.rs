//! What prunings of a run have read of its steps, so that the next one reads what is new.
//!
//! A step is what it was for as long as its `COMMIT` and all its files, and those that it refers to, have the lengths and times that they had. So
//! a pruning after each save asks how the steps look and opens the newest alone, however many tensors the others have.

use super::delete::prune_knowing;
use super::facts::Facts;
use super::keep::Keep;
use super::plan::{PrunePlan, plan_knowing};
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::error::StoreContext;
use crate::manifest::Brief;
use crate::names::commit_key;
use cairn_store::{ObjectMeta, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How old what lies in a bucket must be before its time says whether it has changed: those times are whole seconds, by another clock.
const FAR_AGE: Duration = Duration::from_secs(60);

/// Prunes one run again and again, and reads each of its steps once. A program that saves has one; what it keeps of a step is small.
#[derive(Debug)]
pub struct Pruner {
    store: Arc<dyn Store>,
    known: Known,
}

impl Pruner {
    /// For the run in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let known = Known(Some(Mutex::default()));
        Self { store, known }
    }

    /// As [`plan`](super::plan).
    ///
    /// # Errors
    /// If the run cannot be listed.
    pub fn plan(
        &self,
        keep: &Keep,
        abandoned_after: Option<Duration>,
        now: SystemTime,
    ) -> Result<PrunePlan, Error> {
        plan_knowing(&self.store, keep, abandoned_after, now, &self.known)
    }

    /// As [`prune`](super::prune).
    ///
    /// # Errors
    /// If something cannot be deleted. Deleting again is harmless.
    pub fn prune(&self, plan: &PrunePlan) -> Result<Vec<u64>, Error> {
        prune_knowing(self.store.as_ref(), plan, &self.known)
    }
}

/// What is known of steps; `None` if nothing is kept.
#[derive(Debug, Default)]
pub(crate) struct Known(Option<Mutex<BTreeMap<u64, Arc<Step>>>>);

/// A committed step whose structure was found to be whole.
#[derive(Debug)]
pub(super) struct Step {
    /// With the tags that it was saved with.
    pub(super) facts: Facts,
    pub(super) attempt: String,
    base_files: Vec<String>,
    /// How it looked when it was read, if nobody was at it.
    look: Option<Look>,
}

/// How a step looks to those who do not read it.
#[derive(Debug, PartialEq)]
struct Look {
    commit: ObjectMeta,
    /// What lies in the folders of its attempt and of those that it refers to.
    folders: BTreeMap<String, Vec<ObjectMeta>>,
}

impl Known {
    /// Nothing, and nothing is kept.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// A step whose structure is whole, read if it is not known.
    pub(super) fn step(
        &self,
        store: &Arc<dyn Store>,
        step: u64,
        now: SystemTime,
    ) -> Result<Arc<Step>, Error> {
        if let Some(known) = self.find(step)
            && let Some(look) = &known.look
            && look.is_same(store.as_ref(), step)?
        {
            return Ok(known);
        }
        let found = Arc::new(Step::read(store, step, now, self.0.is_some())?);
        if let Some(mut steps) = self.steps() {
            match found.look {
                Some(_) => drop(steps.insert(step, found.clone())),
                None => drop(steps.remove(&step)),
            }
        }
        Ok(found)
    }

    /// What is known of the step that is committed now; `None` if it has to be read.
    pub(crate) fn brief(&self, store: &dyn Store, step: u64) -> Result<Option<Brief>, Error> {
        let Some(known) = self.find(step) else {
            return Ok(None);
        };
        let commit = look_for_commit(store, step)?;
        let is_same = known.look.as_ref().map(|look| &look.commit) == commit.as_ref();
        Ok(is_same.then(|| Brief {
            step,
            attempt: known.attempt.clone(),
            tags: known.facts.tags.clone(),
            base_files: known.base_files.clone(),
        }))
    }

    /// Forgets steps that are not committed any more.
    pub(super) fn retain(&self, committed: &[u64]) {
        if let Some(mut steps) = self.steps() {
            steps.retain(|step, _| committed.binary_search(step).is_ok());
        }
    }

    fn find(&self, step: u64) -> Option<Arc<Step>> {
        self.steps()?.get(&step).cloned()
    }

    fn steps(&self) -> Option<MutexGuard<'_, BTreeMap<u64, Arc<Step>>>> {
        let steps = self.0.as_ref()?;
        Some(steps.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Step {
    /// Opens a step and checks its structure. How it looks is noted first, so that what changes meanwhile is noticed the next time.
    fn read(
        store: &Arc<dyn Store>,
        step: u64,
        now: SystemTime,
        is_kept: bool,
    ) -> Result<Self, Error> {
        let commit = match is_kept {
            true => look_for_commit(store.as_ref(), step)?,
            false => None,
        };
        let checkpoint = Checkpoint::open(store.clone(), step)?;
        let manifest = checkpoint.manifest();
        let bases = manifest.delta.iter().flat_map(|delta| delta.bases.keys());
        let folders: BTreeSet<&String> = bases.chain([&checkpoint.keys().folder]).collect();
        let look = commit.map(|commit| Look::new(store.as_ref(), commit, folders));
        let look = look.transpose()?;
        checkpoint.check()?;
        Ok(Self {
            facts: Facts::of(manifest),
            attempt: manifest.attempt.clone(),
            base_files: manifest.base_files(),
            look: look.filter(|look| !store.is_far() || look.is_older(FAR_AGE, now)),
        })
    }
}

impl Look {
    fn new<'a>(
        store: &dyn Store,
        commit: ObjectMeta,
        folders: impl IntoIterator<Item = &'a String>,
    ) -> Result<Self, Error> {
        let list = |folder: &String| {
            let listing = store.list(folder);
            let listing = listing.doing(|| format!("list `{folder}`"))?;
            Ok((folder.clone(), listing))
        };
        let folders: Result<_, Error> = folders.into_iter().map(list).collect();
        Ok(Self {
            commit,
            folders: folders?,
        })
    }

    /// Whether the step still looks like this.
    fn is_same(&self, store: &dyn Store, step: u64) -> Result<bool, Error> {
        let Some(commit) = look_for_commit(store, step)? else {
            return Ok(false);
        };
        Ok(commit == self.commit && Self::new(store, commit, self.folders.keys())? == *self)
    }

    fn is_older(&self, age: Duration, now: SystemTime) -> bool {
        let files = self.folders.values().flatten();
        let mut all = files.chain([&self.commit]);
        all.all(|meta| now.duration_since(meta.modified).is_ok_and(|old| old >= age))
    }
}

fn look_for_commit(store: &dyn Store, step: u64) -> Result<Option<ObjectMeta>, Error> {
    let key = commit_key(step);
    store.head(&key).doing(|| format!("look for `{key}`"))
}
