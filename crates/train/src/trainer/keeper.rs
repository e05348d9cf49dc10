//! Saves a run in the background, and lets old steps go.

use super::average::Average;
use super::{Home, Trainer};
use crate::error::{Error, told};
use crate::parallel::Layout;
use crate::report::Event;
use crate::settings::{Checkpoints, Settings};
use cairn_checkpoint::retention::{Keep, Pruner};
use cairn_checkpoint::{
    Checkpointer, Error as CheckpointError, IfCommitted, Level, SaveOptions, Saving, State, World,
};
use cairn_collectives::{broadcast_value, gather_values};
use cairn_store::{PutMode, Store, Tiered};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

/// The plain value that says where a run is.
pub(super) const PROGRESS: &str = "trainer.progress";

/// The plain value that says how a run was chosen to go.
const SETTINGS: &str = "trainer.settings";

/// The plain value that says what the data of a run is made of.
pub(super) const DATA: &str = "trainer.data";

/// One rank's hand in the checkpoints of a run.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) checkpointer: Checkpointer,
    world: World,
    pub(super) average: Option<Average>,
    options: SaveOptions,
    chosen: Checkpoints,
    /// The newest save of this launch.
    newest: Option<Saving>,
    /// How many saves failed, one after another.
    failed: u64,
    /// The step that the run was resumed from.
    pub(super) resumed: Option<u64>,
    pruning: Option<JoinHandle<()>>,
}

impl Keeper {
    /// The hand of this rank.
    ///
    /// # Collective
    pub(super) fn new(home: Home, settings: &Settings, layout: &Layout) -> Result<Self, Error> {
        let group = layout.world.as_ref();
        let own = World::single();
        let session = (group.rank() == 0).then(|| own.session().to_string());
        let session = broadcast_value(group, 0, session.as_ref())?;
        let world = World::new(group.rank(), group.size(), session);
        // Rank 0 drew the name for this launch.
        let world = world
            .expect("a rank is less than the size of its group")
            .unique();
        let mut options = home.options;
        options.delta |= settings.checkpoints.delta;
        options.compress |= settings.checkpoints.compress;
        Ok(Self {
            checkpointer: Checkpointer::with_options(home.store, world.clone(), options),
            world,
            average: None,
            options: SaveOptions {
                assets: home.assets,
                ..SaveOptions::default()
            },
            chosen: settings.checkpoints.clone(),
            newest: None,
            failed: 0,
            resumed: None,
            pruning: None,
        })
    }

    /// Refuses a place for checkpoints that cannot be written to, before there is something to lose.
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        let store = self.checkpointer.store();
        let store = store.tiers().map_or(store, Tiered::fast);
        let key = format!("probe-{}", self.world.session());
        let written = store.put(&key, b"-", PutMode::Replace);
        let gone = written.and_then(|()| store.delete(&key));
        gone.map_err(|source| Error::Unwritable {
            url: store.url(),
            source,
        })
    }

    /// Brings to the durable tier what earlier launches left on the fast one, if there are tiers; in the background, unless nobody could open it before.
    pub(super) fn finish_uploads(&self) -> Result<(), Error> {
        self.checkpointer.resume_uploads()?;
        let tiers = self.checkpointer.store().tiers();
        if tiers.is_some_and(Tiered::is_per_node)
            && let Err(error) = self.checkpointer.wait_uploads()
        {
            tracing::warn!(error = %error, "not everything on the fast tier could be uploaded");
        }
        Ok(())
    }

    /// Waits until what is being saved may change.
    pub(super) fn fence(&self) -> Result<(), Error> {
        if let Some(saving) = &self.newest {
            saving.fence(&[])?;
        }
        self.average.as_ref().map_or(Ok(()), Average::fence)
    }

    /// Keeps an average of the tensors `of` in states like this one, if the settings want it.
    pub(super) fn keep_average(
        &mut self,
        state: &State<'_>,
        of: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let decay = self.chosen.ema;
        let average = decay.map(|decay| Average::new(decay, &self.world, state, of));
        self.average = average.transpose()?;
        Ok(())
    }

    /// Counts a save that failed. It is the end if the settings allow no more of them.
    fn count_failed(&mut self, step: u64, source: Arc<CheckpointError>) -> Result<(), Error> {
        self.failed += 1;
        match self.chosen.max_failed {
            Some(most) if self.failed > most => Err(Error::Save { step, source }),
            _ => Ok(()),
        }
    }

    /// Takes the places of committed steps from now on: they were found to be damaged.
    pub(super) fn replace_committed(&mut self) {
        self.options.if_committed = IfCommitted::Replace;
    }

    /// Removes what the settings do not keep, once `saving` is over.
    fn prune(&mut self, saving: Saving) {
        let (Some(keep), None) = (self.chosen.keep(), &self.pruning) else {
            return;
        };
        let pruner = self.checkpointer.pruner().clone();
        self.pruning = Some(thread::spawn(move || {
            saving.join();
            if let Err(error) = prune(&pruner, &keep) {
                tracing::warn!(error = %error, "old checkpoints stay");
            }
        }));
    }

    /// Ends the pruning before this one, unless it waits for an upload that training should not wait for.
    fn end_pruning(&mut self) {
        let is_over = self.pruning.as_ref().is_none_or(JoinHandle::is_finished);
        if is_over || self.checkpointer.store().tiers().is_none() {
            self.join_pruning();
        }
    }

    fn join_pruning(&mut self) {
        if let Some(thread) = self.pruning.take() {
            // It has told what went wrong.
            let _ = thread.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.join_pruning();
    }
}

fn prune(pruner: &Pruner, keep: &Keep) -> Result<(), CheckpointError> {
    let plan = pruner.plan(keep, None, SystemTime::now())?;
    pruner.prune(&plan).map(drop)
}

impl Trainer {
    /// Saves the run as it is, in the background: state is copied while the next step goes forward and back, then written.
    ///
    /// # Collective
    /// # Crash safety
    /// Until the step is committed, the steps before it are what a run resumes from.
    ///
    /// # Errors
    /// If the run has no place for checkpoints, or the save before failed and nobody looked: another call saves this step.
    pub fn save(&mut self) -> Result<Saving, Error> {
        let keeper = self.keeper.as_mut().ok_or(Error::NoRun)?;
        let mut state = State::new(self.layout.world.rank());
        self.arena.add_to(&self.layout.mesh, &mut state)?;
        if let Some(average) = &keeper.average {
            average.add_to(&mut state)?;
        }
        state.value(PROGRESS, plain(&self.progress));
        state.value(SETTINGS, plain(&self.settings));
        if let Some(data) = &self.fingerprint {
            state.value(DATA, data.clone());
        }
        for (name, value) in &self.metrics {
            state.metric(name, *value);
        }
        let step = self.progress.step;
        let saving = keeper.checkpointer.save(step, &state, &keeper.options)?;
        self.stall += saving.stall();
        keeper.newest = Some(saving.clone());
        keeper.end_pruning();
        if self.layout.world.rank() == 0 {
            keeper.prune(saving.clone());
        }
        Ok(saving)
    }

    /// Waits until saves have taken what the optimizer is about to change; they had the time of a forward and a backward for it.
    pub(super) fn fence(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        if let Some(keeper) = &self.keeper {
            keeper.fence()?;
        }
        self.stall += begun.elapsed();
        Ok(())
    }

    /// Has the average, if there is one, take in the weights as they are.
    pub(super) fn average(&mut self) -> Result<(), Error> {
        let Some(keeper) = &mut self.keeper else {
            return Ok(());
        };
        let Some(average) = &mut keeper.average else {
            return Ok(());
        };
        let begun = Instant::now();
        let mut state = State::new(self.layout.world.rank());
        self.arena.add_to(&self.layout.mesh, &mut state)?;
        average.update(&keeper.checkpointer, self.progress.step, &state)?;
        self.stall += begun.elapsed();
        Ok(())
    }

    /// Whether the settings want the step that was just made saved.
    pub fn is_time_to_save(&self) -> bool {
        let every = self.keeper.as_ref().and_then(|keeper| keeper.chosen.every);
        every.is_some_and(|every| every > 0 && self.progress.step.is_multiple_of(every))
    }

    /// Saves this step; tells whether the save before failed.
    pub(super) fn try_save(&mut self, each: &mut super::Listener<'_>) -> Result<(), Error> {
        let saving = match self.save() {
            Err(Error::Checkpoint(CheckpointError::NotUploaded { step, source })) => {
                let reason = told(&*source);
                each(self, Event::SaveFailed { step, reason })?;
                self.save()?
            }
            Err(Error::Checkpoint(CheckpointError::PreviousSave { step, source })) => {
                let reason = told(&*source);
                each(self, Event::SaveFailed { step, reason })?;
                let keeper = self.keeper.as_mut().ok_or(Error::NoRun)?;
                keeper.count_failed(step, source)?;
                self.save()?
            }
            saving => {
                let saving = saving?;
                self.keeper.as_mut().ok_or(Error::NoRun)?.failed = 0;
                saving
            }
        };
        let (step, stall) = (saving.step(), saving.stall());
        each(self, Event::Saving { step, stall })
    }

    /// Saves this step unless it is saved, and waits until it is safe, on the durable tier if there is one. A save that fails is tried once more.
    ///
    /// # Collective
    /// # Errors
    /// If this step cannot be saved, or is on the fast tier only.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.finish_save()?;
        let (step, keeper) = (self.progress.step, self.keeper.as_ref());
        let uploaded = keeper.map_or(Ok(()), |keeper| keeper.checkpointer.wait_uploads());
        uploaded.map_err(|source| Error::Save { step, source })
    }

    /// Saves this step unless it is saved, and waits until it is where it is saved to.
    fn finish_save(&mut self) -> Result<(), Error> {
        let step = self.progress.step;
        let Some(keeper) = &mut self.keeper else {
            return Err(Error::NoRun);
        };
        if keeper.resumed == Some(step) {
            return Ok(());
        }
        let begun = keeper.newest.take().filter(|saving| saving.step() == step);
        if let Some(saving) = begun
            && self.settle(&saving)?.is_ok()
        {
            return Ok(());
        }
        let saving = match self.save() {
            Err(Error::Checkpoint(
                CheckpointError::PreviousSave { .. } | CheckpointError::NotUploaded { .. },
            )) => self.save()?,
            saving => saving?,
        };
        self.settle(&saving)?
            .map_err(|source| Error::Save { step, source })
    }

    /// Waits for a save; all ranks agree on how it went.
    fn settle(&self, saving: &Saving) -> Result<Result<(), Arc<CheckpointError>>, Error> {
        let outcome = saving.wait_for(Level::Local);
        let reason = outcome.as_ref().err().map(ToString::to_string);
        let reasons = gather_values(self.layout.world.as_ref(), &reason)?;
        let failed = reasons.into_iter().flatten().next();
        Ok(match (outcome, failed) {
            (Ok(()), Some(reason)) => Err(Arc::new(CheckpointError::GivenUp { reason })),
            (outcome, _) => outcome,
        })
    }
}

/// Plain values of ours can always be written.
fn plain(value: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}
