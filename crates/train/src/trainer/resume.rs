//! Goes on where a run was, on whatever ranks there are now.

use super::Trainer;
use super::compare::{Comparison, Described};
use super::keeper::{DATA, PROGRESS, SETTINGS};
use super::verdict::{Refusal, Verdict};
use crate::error::Error;
use crate::report::Progress;
use crate::settings::Settings;
use cairn_arena::{Loaded, Scope, UPDATES};
use cairn_checkpoint::{Checkpoint, LoadOptions, SharedSource, Source};
use cairn_collectives::{broadcast_value, gather_values};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a run was resumed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// The step.
    pub step: u64,
    /// Newer steps that are damaged, or went as they were read, newest first, and why.
    pub skipped: Vec<(u64, String)>,
    /// How this launch differs from the one that saved the step, in ways that are allowed: `steps` was 6, is 12.
    pub changes: Vec<String>,
}

impl Trainer {
    /// Goes on from the newest step that is not damaged; `None` if there is no step at all.
    ///
    /// A step is passed over only if a rank proves that it is damaged. One that cannot be read right now, because of a time-out or a missing
    /// permission, may be good, and so may one that a newer Cairn wrote: all ranks end with the reason.
    ///
    /// The layout may be another than the one that saved: parameters and the state of the optimizer go where they belong now. The seed of the
    /// first launch stays the seed of the run.
    ///
    /// # Collective
    /// # Errors
    /// If there are steps but all are damaged, the newest good one cannot be loaded or is of another run, as its model, data, seed, optimizer or
    /// batch say, unless these [may change](crate::Settings::may_change), or the run has no place for checkpoints.
    pub fn resume(&mut self) -> Result<Option<Resumed>, Error> {
        let world = self.layout.world.clone();
        let keeper = self.keeper.as_ref().ok_or(Error::NoRun)?;
        keeper.finish_uploads()?;
        // Files that lie on several nodes can be opened only when all of them are on the durable tier.
        gather_values(world.as_ref(), &())?;
        let mut skipped = Vec::new();
        let mut tried = BTreeSet::new();
        while let Some(step) = self.newest_step(&tried)? {
            tried.insert(step);
            let compared = self.compared(step)?;
            if let Ok(comparison) = &compared
                && !comparison.refused.is_empty()
            {
                return Err(Error::OtherRun {
                    step,
                    changes: comparison.refused.clone(),
                    allowable: comparison.allowable.clone(),
                });
            }
            let loaded = compared.as_ref().ok().map(|_| self.load(step));
            let verdict = match &compared {
                Err(refusal) => Verdict::of(vec![Some(refusal.clone())]),
                Ok(_) => {
                    let own = loaded.as_ref().and_then(|loaded| loaded.as_ref().err());
                    let refusals = gather_values(world.as_ref(), &own.map(Refusal::of))?;
                    Verdict::of(refusals)
                }
            };
            match verdict {
                Verdict::Good => {
                    let changes = compared.map_or(Vec::new(), |comparison| comparison.told);
                    let checkpoint = loaded.expect("all have loaded it")?;
                    let resumed = Resumed {
                        step,
                        skipped,
                        changes,
                    };
                    return Ok(Some(self.resumed(&checkpoint, resumed)));
                }
                Verdict::PassOver { damaged, reason } => {
                    if damaged && let Some(keeper) = &mut self.keeper {
                        keeper.replace(step);
                    }
                    skipped.push((step, reason));
                }
                Verdict::Unfit => {
                    loaded.transpose()?;
                }
                Verdict::Unreadable { rank, refusal } => {
                    return Err(Error::CannotResume {
                        step,
                        rank,
                        reason: refusal.reason,
                        advice: refusal.hint,
                    });
                }
            }
        }
        match skipped.is_empty() {
            true => Ok(None),
            false => Err(Error::NothingToResume { skipped }),
        }
    }

    /// The newest step that was not tried yet, which rank 0 looks for on behalf of all.
    fn newest_step(&self, tried: &BTreeSet<u64>) -> Result<Option<u64>, Error> {
        let keeper = self.keeper.as_ref().ok_or(Error::NoRun)?;
        let world = self.layout.world.as_ref();
        let newest = match world.rank() {
            0 => Some(keeper.checkpointer.newest_step(tried)?),
            _ => None,
        };
        Ok(broadcast_value(world, 0, newest.as_ref())?)
    }

    fn resumed(&mut self, checkpoint: &Checkpoint, resumed: Resumed) -> Resumed {
        if is_seed_free(&self.settings) {
            self.progress.seed = self.settings.seed;
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.resumed = Some(resumed.step);
            // What is saved from now on follows this step; newer ones are abandoned.
            keeper.checkpointer.resumed_from(checkpoint);
        }
        tracing::info!(step = resumed.step, "resumed");
        resumed
    }

    /// How this launch differs from the run that a step is of, as far as both say what they are; rank 0 looks on behalf of all. What kept it
    /// from looking would keep all from loading.
    fn compared(&self, step: u64) -> Result<Result<Comparison, Refusal>, Error> {
        let world = self.layout.world.as_ref();
        let own = match world.rank() {
            0 => Some(self.compare(step).map_err(|error| Refusal::of(&error))),
            _ => None,
        };
        Ok(broadcast_value(world, 0, own.as_ref())?)
    }

    fn compare(&self, step: u64) -> Result<Comparison, Error> {
        let keeper = self.keeper.as_ref().ok_or(Error::NoRun)?;
        let checkpoint = keeper.checkpointer.open(step)?;
        let assets = checkpoint.assets()?.into_iter().collect();
        let before = Described {
            settings: checkpoint.values().get(SETTINGS),
            data: checkpoint.values().get(DATA),
            assets: &assets,
        };
        let settings = self.described();
        let now = Described {
            settings: Some(&settings),
            data: self.fingerprint.as_ref(),
            assets: keeper.assets(),
        };
        Ok(Comparison::new(before, now, &self.settings.may_change))
    }

    /// Loads this rank's part of a step.
    fn load(&mut self, step: u64) -> Result<Arc<Checkpoint>, Error> {
        let keeper = self.keeper.as_ref().ok_or(Error::NoRun)?;
        let checkpoint = Arc::new(keeper.checkpointer.open(step)?);
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
        self.fill(&(checkpoint.clone() as SharedSource), Scope::Everything)?;
        self.arena.set_updates(updates);
        self.progress = progress;
        Ok(checkpoint)
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

/// Whether the seed is that of this launch, and not that of the run.
fn is_seed_free(settings: &Settings) -> bool {
    settings.may_change.iter().any(|name| name == "seed")
}

/// A plain value of a checkpoint.
fn value<T: DeserializeOwned>(checkpoint: &Checkpoint, name: &str) -> Result<T, Error> {
    let value = checkpoint.values().get(name).cloned();
    let value = value.and_then(|value| serde_json::from_value(value).ok());
    value.ok_or_else(|| Error::NotATrainer {
        step: checkpoint.step(),
    })
}
