//! Goes on where a run was, on whatever ranks there are now.

use super::Trainer;
use super::keeper::{DATA, PROGRESS};
use crate::error::{Error, told};
use crate::fingerprint::changes;
use crate::report::Progress;
use cairn_arena::{Loaded, Scope, UPDATES};
use cairn_checkpoint::{Checkpoint, LoadOptions, SharedSource};
use cairn_collectives::{broadcast_value, gather_values};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// What a run was resumed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// The step.
    pub step: u64,
    /// Newer steps that could not be used, newest first, and why.
    pub skipped: Vec<(u64, String)>,
    /// How the data differs from that of the run so far, if the settings allow that.
    pub changes: Vec<String>,
}

impl Trainer {
    /// Goes on from the newest step that all ranks can load; `None` if there is no step at all.
    ///
    /// The layout may be another than the one that saved: parameters and the state of the optimizer go where they belong now. The seed of the
    /// first launch stays the seed of the run.
    ///
    /// # Collective
    /// # Errors
    /// If there are steps but none can be used, the data is not what the run had so far and [may not change](crate::Settings::data_may_change), or the run has no
    /// place for checkpoints.
    pub fn resume(&mut self) -> Result<Option<Resumed>, Error> {
        let world = self.layout.world.clone();
        let keeper = self.keeper.as_ref().ok_or(Error::NoRun)?;
        keeper.finish_uploads()?;
        // Files that lie on several nodes can be opened only when all of them are on the durable tier.
        gather_values(world.as_ref(), &())?;
        let mut skipped: Vec<(u64, String)> = Vec::new();
        while let Some(step) = self.newest_step(skipped.iter().map(|(step, _)| *step))? {
            let failure = self.load(step).err().map(|error| told(&error));
            let failures = gather_values(world.as_ref(), &failure)?;
            match failures.into_iter().flatten().next() {
                None => return self.resumed(step, skipped).map(Some),
                Some(reason) => skipped.push((step, reason)),
            }
        }
        match skipped.is_empty() {
            true => Ok(None),
            false => Err(Error::NothingToResume { skipped }),
        }
    }

    /// The newest step that was not tried yet, which rank 0 looks for on behalf of all.
    fn newest_step(&self, tried: impl Iterator<Item = u64>) -> Result<Option<u64>, Error> {
        let keeper = self.keeper.as_ref().ok_or(Error::NoRun)?;
        let world = self.layout.world.as_ref();
        let newest = match world.rank() {
            0 => Some(keeper.checkpointer.newest_step(&tried.collect())?),
            _ => None,
        };
        Ok(broadcast_value(world, 0, newest.as_ref())?)
    }

    fn resumed(&mut self, step: u64, skipped: Vec<(u64, String)>) -> Result<Resumed, Error> {
        let changes = self.data_changes(step)?;
        if !changes.is_empty() && !self.settings.data_may_change {
            return Err(Error::OtherData { step, changes });
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.resumed = Some(step);
            if !skipped.is_empty() {
                keeper.replace_committed();
            }
        }
        tracing::info!(step, "resumed");
        Ok(Resumed {
            step,
            skipped,
            changes,
        })
    }

    /// How the data differs from that of a step, as far as both say what they are made of.
    fn data_changes(&self, step: u64) -> Result<Vec<String>, Error> {
        let keeper = self.keeper.as_ref().ok_or(Error::NoRun)?;
        let checkpoint = keeper.checkpointer.open(step)?;
        let known = checkpoint.values().get(DATA).zip(self.fingerprint.as_ref());
        Ok(known.map_or(Vec::new(), |(before, now)| changes(before, now)))
    }

    /// Loads this rank's part of a step.
    fn load(&mut self, step: u64) -> Result<(), Error> {
        let keeper = self.keeper.as_ref().ok_or(Error::NoRun)?;
        let checkpoint = keeper.checkpointer.open(step)?;
        let progress: Progress = value(&checkpoint, PROGRESS)?;
        let updates = value(&checkpoint, UPDATES)?;
        let options = self.load_options();
        let average = self
            .keeper
            .as_mut()
            .and_then(|keeper| keeper.average.as_mut());
        if let Some(average) = average {
            average.load(&checkpoint, &options)?;
        }
        self.fill(&(Arc::new(checkpoint) as SharedSource), Scope::Everything)?;
        self.arena.set_updates(updates);
        self.progress = progress;
        Ok(())
    }

    /// Begins with the weights of a model, by their names, wherever and however it is stored.
    ///
    /// # Errors
    /// If something is missing, or has another shape.
    pub fn load_weights(&mut self, source: &SharedSource) -> Result<Loaded, Error> {
        self.fill(source, Scope::Parameters)
    }

    fn fill(&mut self, source: &SharedSource, scope: Scope) -> Result<Loaded, Error> {
        let (mesh, options) = (&self.layout.mesh, self.load_options());
        Ok(self.arena.load(mesh, source, scope, &options)?)
    }

    fn load_options(&self) -> LoadOptions {
        LoadOptions {
            threads: self.executor.pool.threads(),
            ..LoadOptions::default()
        }
    }
}

/// A plain value of a checkpoint.
fn value<T: DeserializeOwned>(checkpoint: &Checkpoint, name: &str) -> Result<T, Error> {
    let value = checkpoint.values().get(name).cloned();
    let value = value.and_then(|value| serde_json::from_value(value).ok());
    value.ok_or_else(|| Error::NotATrainer {
        step: checkpoint.step(),
    })
}
