//! Which files must stay because something that is committed, or may yet be, refers to them.

use super::pin;
use crate::Error;
use crate::error::StoreContext;
use crate::manifest::Brief;
use crate::names::{AttemptKeys, step_folder};
use crate::part::read_head;
use crate::retention::Known;
use crate::run::{all_steps, each_step};
use crate::standing::Standing;
use cairn_store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// The files that other steps refer to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct References {
    /// File → who needs it.
    by_file: BTreeMap<String, BTreeSet<Holder>>,
}

/// Who refers to a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// A committed step.
    Step(u64),
    /// An attempt that is not committed, by its folder.
    Attempt(String),
}

/// Whose references do not count.
type Gone<'a> = dyn Fn(&Holder) -> bool + Sync + 'a;

impl References {
    /// Finds every reference in the run, but for those of holders that are `gone`, which are not looked at. All manifests are read
    /// before any pin.
    ///
    /// That order is what makes it safe while others save and prune. A writer pins a file, then looks whether the step it has the file
    /// from is committed, then commits. So if a pin comes too late to be seen here, that step was committed when the manifests
    /// were read, and its own reference was seen.
    ///
    /// # Errors
    /// If something cannot be read that may refer to a file.
    pub(crate) fn read(store: &dyn Store, known: &Known, gone: &Gone<'_>) -> Result<Self, Error> {
        let mut found = Self::default();
        let mut committed = BTreeMap::new();
        let steps = all_steps(store)?;
        let manifests = each_step(store, &steps, |step| match known.brief(store, step)? {
            Some(brief) => Ok(Some(brief)),
            None => read_manifest(store, step),
        })?;
        for (step, manifest) in steps.into_iter().zip(manifests) {
            if let Some(manifest) = manifest {
                let holder = Holder::Step(step);
                if !gone(&holder) {
                    found.add(manifest.base_files, &holder);
                }
                committed.insert(step, manifest.attempt);
            }
        }
        let attempts = each_step(store, &all_steps(store)?, |step| {
            pinned_in(store, step, committed.get(&step), gone)
        })?;
        for (holder, files) in attempts.into_iter().flatten() {
            found.add(files, &holder);
        }
        Ok(found)
    }

    /// The files that committed steps have or refer to.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn committed(store: &dyn Store) -> Result<BTreeSet<String>, Error> {
        let files = each_step(store, &all_steps(store)?, |step| {
            let Some(manifest) = read_manifest(store, step)? else {
                return Ok(Vec::new());
            };
            let folder = AttemptKeys::new(step, &manifest.attempt).folder;
            let listing = store.list_files(&folder);
            let listing = listing.doing(|| format!("list `{folder}`"))?;
            let own = listing.into_iter().map(|meta| meta.key);
            Ok::<_, Error>(own.chain(manifest.base_files).collect())
        })?;
        Ok(files.into_iter().flatten().collect())
    }

    fn add(&mut self, files: Vec<String>, holder: &Holder) {
        for file in files {
            self.by_file.entry(file).or_default().insert(holder.clone());
        }
    }

    /// Who needs `file`, in words; `None` if nobody does.
    pub(crate) fn holders(&self, file: &str) -> Option<String> {
        let holders = self.by_file.get(file)?;
        let texts = holders.iter().map(|holder| match holder {
            Holder::Step(step) => format!("step {step}"),
            Holder::Attempt(folder) => format!("`{folder}`, which is not committed yet"),
        });
        Some(texts.collect::<Vec<_>>().join(", "))
    }
}

/// What those attempts of a step pinned that are neither `committed` nor gone.
fn pinned_in(
    store: &dyn Store,
    step: u64,
    committed: Option<&String>,
    gone: &Gone<'_>,
) -> Result<Vec<(Holder, Vec<String>)>, Error> {
    let folder = step_folder(step);
    let attempts = store.list_folders(&folder);
    let mut found = Vec::new();
    for attempt in attempts.doing(|| format!("list `{folder}`"))? {
        let keys = AttemptKeys::new(step, &attempt);
        let holder = Holder::Attempt(keys.folder.clone());
        if committed != Some(&attempt) && !gone(&holder) {
            found.push((holder, pinned(store, &keys)?));
        }
    }
    Ok(found)
}

/// The files that the writers of an attempt pinned. Where a pin is damaged, what its writer then referred to, which its part says.
fn pinned(store: &dyn Store, keys: &AttemptKeys) -> Result<Vec<String>, Error> {
    let (mut files, folder) = (Vec::new(), &keys.folder);
    let listing = store.list_files(folder);
    for meta in listing.doing(|| format!("list `{folder}`"))? {
        let Some(writer) = keys.writer_of_pin(&meta.key) else {
            continue;
        };
        match pin::read(store, &meta.key) {
            Err(error) if error.is_damage() => {
                let part = read_head(store, keys, writer).map_err(|_| error)?;
                let delta = part.part.file.and_then(|file| file.delta);
                files.extend(delta.into_iter().flat_map(|delta| delta.bases));
            }
            pinned => files.extend(pinned?),
        }
    }
    Ok(files)
}

/// The manifest of `step`. There is none if it is not committed, damaged or too new: then its pins tell what it refers to.
fn read_manifest(store: &dyn Store, step: u64) -> Result<Option<Brief>, Error> {
    let Some(standing) = Standing::read(store, step)? else {
        return Ok(None);
    };
    match standing.brief() {
        Err(Error::Version { .. } | Error::Needs { .. }) => Ok(None),
        Err(error) if error.is_damage() => Ok(None),
        result => result.map(Some),
    }
}
