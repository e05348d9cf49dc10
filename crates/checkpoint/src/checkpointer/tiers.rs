//! What a checkpointer does on tiers that it does not do on one store.

use super::Checkpointer;
use crate::Error;
use crate::commit::{Attempt, Cutoff, Patience};
use crate::copies::lasting;
use crate::delta::Bases;
use crate::error::chain;
use crate::options::Options;
use crate::saving::Saving;
use crate::upload::{Route, Upload, Uploader};
use crate::world::World;
use cairn_store::{Store, Tiered};
use std::sync::Arc;
use std::time::Instant;

/// What brings saves to the durable tier, if there are tiers.
pub(super) fn uploader(
    store: &Arc<dyn Store>,
    world: &World,
    options: &Options,
    bases: &Arc<Bases>,
) -> Option<Uploader> {
    let tiers = store.tiers()?.clone();
    Some(Uploader::new(Route {
        tiers,
        rank: world.rank(),
        size: world.size(),
        patience: Patience {
            clock: options.clock.clone(),
            timeout: options.commit_timeout.min(options.upload_timeout),
            takeover: options.takeover,
            is_final: false,
            cutoff: Cutoff::default(),
        },
        upload_timeout: options.upload_timeout,
        pace: options.pace.clone(),
        bases: bases.clone(),
        keep: options.keep_fast,
    }))
}

impl Checkpointer {
    /// Begins to upload what earlier launches left on the fast tier only; [`Checkpointer::wait_uploads`] waits for it. The first save does it, too.
    ///
    /// Where each node has a fast tier of its own, a step that not all nodes had uploaded can be opened only after all of them have done this.
    /// On one store it does nothing.
    ///
    /// # Collective
    /// Every rank calls it, in any order: each uploads what is its to upload.
    ///
    /// # Errors
    /// If the fast tier cannot be read.
    pub fn resume_uploads(&self) -> Result<(), Error> {
        self.uploader
            .as_ref()
            .map_or(Ok(()), |uploader| uploader.start(None))
    }

    /// Waits until everything that is saved is on the durable tier.
    ///
    /// # Errors
    /// The first failure that nobody has looked at. Uploading goes on.
    pub fn wait_uploads(&self) -> Result<(), Arc<Error>> {
        self.uploader.as_ref().map_or(Ok(()), Uploader::wait)
    }

    /// Starts uploading with the first save, and tells once of an upload that failed.
    pub(super) fn look_at_uploads(&self, attempt: &Attempt) -> Result<(), Error> {
        let Some(uploader) = &self.uploader else {
            return Ok(());
        };
        if self.options.delta && self.is_per_node() {
            return Err(Error::State {
                name: "delta".into(),
                reason: "cannot be used where each node has a fast tier of its own: none of them knows which steps are committed".into(),
            });
        }
        // What this call takes up has not failed yet, however fast it will.
        uploader.unseen_failure().map_or(Ok(()), Err)?;
        uploader.start(Some(attempt))
    }

    /// What is to be done for a save when it is written.
    pub(super) fn upload_of(&self, attempt: &Attempt, started: Instant) -> Option<Upload> {
        self.store.tiers()?;
        Some(Upload::saved(attempt.clone(), self.world.rank(), started))
    }

    /// Has a save uploaded when it is written.
    pub(super) fn upload_behind(&self, saving: &Saving) {
        if let Some(uploader) = &self.uploader {
            uploader.push(saving.clone());
        }
    }

    /// Refuses a step that is committed already, on any tier, unless it is to be replaced.
    pub(super) fn refuse_committed(&self, attempt: &Attempt) -> Result<(), Error> {
        attempt.refuse_committed(self.near.as_ref())?;
        let Some(tiers) = self.store.tiers() else {
            return Ok(());
        };
        match attempt.refuse_committed(tiers.durable().as_ref()) {
            Err(error @ Error::Store { .. }) => {
                // The upload will find out, and training need not wait for a store that is away.
                let step = attempt.step;
                tracing::warn!(step, error = %chain(&error), "the durable tier cannot be asked for a step");
                Ok(())
            }
            refused => refused,
        }
    }

    /// Where writers tell each other of failures: where all of them look for parts.
    pub(super) fn board(&self) -> &Arc<dyn Store> {
        match self.is_per_node() {
            true => lasting(&self.store),
            false => &self.near,
        }
    }

    pub(super) fn report_failure(&self, attempt: &Attempt, error: &Error) {
        attempt.report_failure(self.board().as_ref(), self.world.rank(), error);
    }

    /// How long a save waits for the parts of the others where it is written; not at all if only those of this node come there.
    pub(super) fn patience(&self) -> Option<Patience> {
        (!self.is_per_node()).then_some(Patience {
            clock: self.options.clock.clone(),
            timeout: self.options.commit_timeout,
            takeover: self.options.takeover,
            is_final: true,
            cutoff: Cutoff::default(),
        })
    }

    fn is_per_node(&self) -> bool {
        self.store.tiers().is_some_and(Tiered::is_per_node)
    }
}
