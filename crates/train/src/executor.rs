//! Runs the schedule of a pipeline stage over its blocks.

use crate::Error;
use crate::link::Link;
use crate::parallel::Layout;
use crate::stage::Stage;
use cairn_arena::Arena;
use cairn_kernels::Pool;
use cairn_model::{Activation, Batch, Block, IGNORED, Keep, Pass, Saved};
use cairn_plan::{Action, Schedule, Work};
use std::collections::HashMap;

/// The blocks of one rank, and the order in which micro-batches go through them.
#[derive(Debug)]
pub(crate) struct Executor {
    /// Where the rank stands.
    pub(crate) layout: Layout,
    /// Its threads.
    pub(crate) pool: Pool,
    /// Which blocks it has.
    pub(crate) stage: Stage,
    /// The blocks of the stage, each with the bucket of the same number.
    pub(crate) blocks: Vec<Box<dyn Block<f32>>>,
    /// What every stage does.
    pub(crate) schedule: Schedule,
    /// Whether the ranks of the `tp` axis share rows.
    pub(crate) sequence_parallel: bool,
    /// What is kept of a forward.
    pub(crate) keep: Keep,
}

/// What a run of a schedule needs besides the blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round<'a> {
    /// The micro-batches.
    pub(crate) batches: &'a [Batch],
    /// The seed of the run.
    pub(crate) seed: u64,
    /// Steps done before.
    pub(crate) step: u64,
    /// The derivative of the loss with respect to that of each token that counts.
    pub(crate) scale: f32,
    /// Whether there is a backward.
    pub(crate) training: bool,
    /// Whether the last block predicts, in place of comparing with targets.
    pub(crate) predicts: bool,
}

impl Executor {
    /// Passes micro-batches forward and back, and adds to the gradients. Returns the losses of the tokens, micro-batch by micro-batch, if the
    /// last part of the model is here.
    ///
    /// # Collective
    pub(crate) fn train(
        &self,
        arena: &mut Arena,
        round: Round<'_>,
    ) -> Result<Vec<Vec<f32>>, Error> {
        let actions = self.schedule.stages[self.layout.pp.rank()].clone();
        self.execute(arena, round, &actions)
    }

    /// Passes micro-batches forward only. Returns what the last block gives, micro-batch by micro-batch, if it is here.
    ///
    /// # Collective
    pub(crate) fn evaluate(
        &self,
        arena: &mut Arena,
        round: Round<'_>,
    ) -> Result<Vec<Vec<f32>>, Error> {
        let chunks = self.stage.chunks.len();
        let one = |micro_batch| {
            (0..chunks).map(move |chunk| Action {
                work: Work::Forward,
                micro_batch,
                chunk,
            })
        };
        let actions: Vec<Action> = (0..round.batches.len()).flat_map(one).collect();
        self.execute(arena, round, &actions)
    }

    fn execute(
        &self,
        arena: &mut Arena,
        round: Round<'_>,
        actions: &[Action],
    ) -> Result<Vec<Vec<f32>>, Error> {
        let mut running = Running {
            executor: self,
            round,
            link: Link::new(self.layout.pp.as_ref(), &self.pool, round.batches.len()),
            saved: HashMap::new(),
            losses: vec![Vec::new(); round.batches.len()],
            coming: self.buckets(actions).into_iter(),
        };
        running.prefetch(arena);
        for action in actions {
            match action.work {
                Work::Forward => running.forward(arena, *action)?,
                Work::Backward => running.backward(arena, *action)?,
            }
        }
        Ok(running.losses)
    }

    /// Whether a block of a chunk is the last of the model.
    fn is_last(&self, chunk: usize, block: usize) -> bool {
        let chunk = &self.stage.chunks[chunk];
        chunk.part + 1 == self.stage.parts && block + 1 == chunk.blocks.end
    }

    /// The buckets that are used one after another.
    fn buckets(&self, actions: &[Action]) -> Vec<usize> {
        let each = actions.iter().flat_map(|action| {
            let blocks = self.stage.chunks[action.chunk].blocks.clone();
            match action.work {
                Work::Forward => blocks.collect::<Vec<_>>(),
                Work::Backward => blocks.rev().collect(),
            }
        });
        each.collect()
    }
}

/// A schedule that is being run.
struct Running<'a> {
    executor: &'a Executor,
    round: Round<'a>,
    link: Link<'a>,
    /// What the blocks of a chunk keep of a micro-batch.
    saved: HashMap<(usize, usize), Vec<Saved>>,
    losses: Vec<Vec<f32>>,
    /// The buckets that come after the one in use.
    coming: std::vec::IntoIter<usize>,
}

impl Running<'_> {
    fn forward(&mut self, arena: &mut Arena, action: Action) -> Result<(), Error> {
        let Action {
            micro_batch, chunk, ..
        } = action;
        let part = self.executor.stage.chunks[chunk].part;
        let mut activation = match part.checked_sub(1) {
            None => Activation::empty(),
            Some(before) => self
                .link
                .receive(Work::Forward, before, part, micro_batch)?,
        };
        let keep = match self.round.training {
            true => self.executor.keep,
            false => Keep::Nothing,
        };
        let mut kept = Vec::new();
        for index in self.executor.stage.chunks[chunk].blocks.clone() {
            self.prefetch(arena);
            let (block, pass) = (&self.executor.blocks[index], self.pass(micro_batch));
            let input = std::mem::replace(&mut activation, Activation::empty());
            let weights = arena.weights(index)?;
            if self.round.predicts && self.executor.is_last(chunk, index) {
                activation = block.predict(&pass, weights, input)?;
                arena.release(index);
                continue;
            }
            let (output, saved) = block.forward(&pass, weights, input, keep)?;
            arena.release(index);
            activation = output;
            kept.push(saved);
        }
        if self.round.training {
            self.saved.insert((chunk, micro_batch), kept);
        }
        match part + 1 == self.executor.stage.parts {
            true => self.losses[micro_batch] = activation.to_vec(),
            false => self
                .link
                .send(Work::Forward, part + 1, micro_batch, activation)?,
        }
        Ok(())
    }

    fn backward(&mut self, arena: &mut Arena, action: Action) -> Result<(), Error> {
        let Action {
            micro_batch, chunk, ..
        } = action;
        let part = self.executor.stage.chunks[chunk].part;
        let mut gradient = match part + 1 == self.executor.stage.parts {
            true => self.derivative(micro_batch).into(),
            false => self
                .link
                .receive(Work::Backward, part + 1, part, micro_batch)?,
        };
        let mut kept = self.saved.remove(&(chunk, micro_batch)).unwrap_or_default();
        // The backwards of a chunk are in the order of its micro-batches.
        let last = micro_batch + 1 == self.round.batches.len();
        for index in self.executor.stage.chunks[chunk].blocks.clone().rev() {
            self.prefetch(arena);
            let (block, pass) = (&self.executor.blocks[index], self.pass(micro_batch));
            let saved = kept
                .pop()
                .expect("every block that went forward kept something");
            let output = std::mem::replace(&mut gradient, Activation::empty());
            let (weights, gradients) = arena.weights_and_gradients(index)?;
            gradient = block.backward(&pass, weights, saved, output, gradients)?;
            arena.release(index);
            arena.ready(index, last)?;
        }
        match part.checked_sub(1) {
            None => Ok(()),
            Some(before) => Ok(self
                .link
                .send(Work::Backward, before, micro_batch, gradient)?),
        }
    }

    /// The derivative of the loss of the step with respect to the loss of each token.
    fn derivative(&self, micro_batch: usize) -> Vec<f32> {
        let targets = &self.round.batches[micro_batch].targets;
        let each = targets.iter().map(|target| match *target {
            IGNORED => 0.0,
            _ => self.round.scale,
        });
        each.collect()
    }

    fn pass(&self, micro_batch: usize) -> Pass<'_> {
        Pass {
            pool: &self.executor.pool,
            tp: self.executor.layout.tp.as_ref(),
            sequence_parallel: self.executor.sequence_parallel,
            batch: &self.round.batches[micro_batch],
            seed: self.round.seed,
            step: self.round.step,
            training: self.round.training,
        }
    }

    /// Has the bucket after the one in use fetched.
    fn prefetch(&mut self, arena: &mut Arena) {
        if let Some(bucket) = self.coming.next() {
            arena.prefetch(bucket);
        }
    }
}
