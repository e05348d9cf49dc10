//! A running average of the weights, kept up to date behind the steps.

use crate::Error;
use cairn_checkpoint::ema::{Ema, OnChange};
use cairn_checkpoint::{
    Averaging, Checkpoint, Checkpointer, LoadOptions, Outline, State, Strictness, Update, World,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A running average of the weights of one rank, by the names of the parameters. Where there are master weights, it is of these.
#[derive(Debug)]
pub(super) struct Average {
    parts: Parts,
    averaging: Arc<Averaging>,
    /// The newest update.
    update: Option<Update>,
}

/// What an average is made of.
#[derive(Debug)]
struct Parts {
    decay: f64,
    world: World,
    outline: Arc<Outline>,
    /// Name of an average → name of its tensor.
    of: BTreeMap<String, String>,
}

impl Parts {
    fn averaging(&self) -> Result<Averaging, Error> {
        let definitions = vec![Ema::exponential(self.decay)];
        Ok(Averaging::new(
            &self.world,
            &self.outline,
            definitions,
            &self.of,
        )?)
    }
}

impl Average {
    /// The average that keeps `decay` of itself with every step, of the tensors `of` in states like this one.
    pub(super) fn new(
        decay: f64,
        world: &World,
        state: &State<'_>,
        of: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let parts = Parts {
            decay,
            world: world.clone(),
            outline: state.outline(),
            of: of.clone(),
        };
        Ok(Self {
            averaging: Arc::new(parts.averaging()?),
            parts,
            update: None,
        })
    }

    /// Takes in the weights in `state`, in the background.
    pub(super) fn update(
        &mut self,
        run: &Checkpointer,
        step: u64,
        state: &State<'_>,
    ) -> Result<(), Error> {
        self.update = run.average(step, state, &self.averaging)?;
        Ok(())
    }

    /// Waits until the weights that it takes in may change.
    pub(super) fn fence(&self) -> Result<(), Error> {
        if let Some(update) = &self.update {
            update.fence(&[])?;
        }
        Ok(())
    }

    /// Adds the average to a state that is to be saved.
    pub(super) fn add_to(&self, state: &mut State<'_>) -> Result<(), Error> {
        Ok(self.averaging.add_to(state, self.update.clone())?)
    }

    /// Goes on from the average in a checkpoint; it starts anew if there is none like it.
    pub(super) fn load(
        &mut self,
        checkpoint: &Checkpoint,
        options: &LoadOptions,
    ) -> Result<(), Error> {
        let mut averaging = self.parts.averaging()?;
        let averages = averaging.averages_mut().expect("it was just made");
        averages.resume(checkpoint.values(), OnChange::StartAnew)?;
        let options = LoadOptions {
            strictness: Strictness::PARTIAL,
            ..options.clone()
        };
        checkpoint.load(averages.targets()?, &options)?;
        self.averaging = Arc::new(averaging);
        self.update = None;
        Ok(())
    }
}
