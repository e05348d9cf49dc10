//! The steps of a run as a reader sees them.

use super::Checkpointer;
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::error::Skipped;
use crate::lines::{self, Committed};
use crate::load::{LoadOptions, LoadReport};
use crate::run;
use crate::tags;
use crate::target::Target;
use cairn_store::Store;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The newest good step, and the newer ones that are not.
#[derive(Debug)]
pub struct Latest {
    /// The step to use.
    pub checkpoint: Checkpoint,
    /// Newer steps that were passed over, newest first, and why; also this one, if a younger attempt at it was.
    pub skipped: Vec<Skipped>,
}

impl Checkpointer {
    /// The committed steps, ascending.
    ///
    /// # Errors
    /// If the run cannot be listed.
    pub fn steps(&self) -> Result<Vec<u64>, Error> {
        run::committed_steps(self.stored_and_kept().as_ref())
    }

    /// The committed steps in the order in which they were saved, and whether the run went back to before them since. A step whose manifest
    /// cannot be used is left out.
    ///
    /// # Errors
    /// If the run cannot be read.
    pub fn history(&self) -> Result<Vec<Committed>, Error> {
        lines::committed(&self.stored_and_kept())
    }

    /// The newest committed step that is not one of `except`. It may be damaged. Asks far less of a store than [`Checkpointer::steps`].
    ///
    /// # Errors
    /// If the run cannot be listed.
    pub fn newest_step(&self, except: &BTreeSet<u64>) -> Result<Option<u64>, Error> {
        run::newest(self.stored_and_kept().as_ref(), except)
    }

    /// Opens a committed step.
    ///
    /// # Errors
    /// If there is no such step, or it is damaged.
    pub fn open(&self, step: u64) -> Result<Checkpoint, Error> {
        run::open(
            &self.stored_and_kept(),
            step,
            self.options.require_key.as_ref(),
        )
    }

    /// Opens the newest step whose structure is whole, passing over damaged ones.
    ///
    /// # Errors
    /// [`Error::NothingUsable`] if there is none.
    pub fn latest(&self) -> Result<Latest, Error> {
        let key = self.options.require_key.as_ref();
        self.newest(|store| run::latest(store, key), |latest| &latest.skipped)
    }

    /// Gives a committed step a tag, which keeps it for as long as it has it.
    ///
    /// # Errors
    /// See [`tags::tag`].
    pub fn tag(&self, step: u64, name: &str) -> Result<(), Error> {
        tags::tag(&self.store, step, name)
    }

    /// Takes a tag off a committed step.
    ///
    /// # Errors
    /// See [`tags::untag`].
    pub fn untag(&self, step: u64, name: &str) -> Result<(), Error> {
        tags::untag(&self.store, step, name)
    }

    /// The tags of a committed step, in order.
    ///
    /// # Errors
    /// As [`Checkpointer::open`].
    pub fn tags(&self, step: u64) -> Result<Vec<String>, Error> {
        self.open(step)?.tags()
    }

    /// Loads the newest step whose bytes are all intact: damage found while reading moves on to the step before.
    ///
    /// # Collective
    /// Peers that load together find the same damage and move on together.
    ///
    /// # Errors
    /// [`Error::NothingUsable`] if there is none; key problems of the newest good step.
    pub fn load_latest(
        &self,
        mut targets: Vec<Target>,
        options: &LoadOptions,
    ) -> Result<(Latest, LoadReport), Error> {
        let mut options = options.clone();
        let key = self.options.require_key;
        let mut load = |store: &Arc<dyn Store>| {
            run::walk_back(store, key.as_ref(), |checkpoint| {
                let again = targets.iter_mut().map(Target::reborrow).collect();
                // Each try is a load of its own.
                if let Some(peers) = &mut options.peers {
                    peers.token.push('+');
                }
                checkpoint.load(again, &options)
            })
        };
        let loaded = self.newest(&mut load, |(latest, _)| &latest.skipped)?;
        self.resumed_from(&loaded.0.checkpoint);
        Ok(loaded)
    }

    /// Looks for the newest good step in the store with what is kept laid over it. If something there is damaged, the store alone is asked.
    fn newest<T>(
        &self,
        mut look: impl FnMut(&Arc<dyn Store>) -> Result<T, Error>,
        skipped: impl Fn(&T) -> &Vec<Skipped>,
    ) -> Result<T, Error> {
        if self.options.keeper.is_some() {
            let found = look(&self.stored_and_kept());
            let clean = |found: &T| skipped(found).is_empty();
            match &found {
                Ok(newest) if clean(newest) => return found,
                Err(error)
                    if !error.is_damage() && !matches!(error, Error::NothingUsable { .. }) =>
                {
                    return found;
                }
                _ => {}
            }
        }
        look(&self.store)
    }
}
