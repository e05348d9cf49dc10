//! One step of the optimizer.

use crate::memory::Memory;
use crate::optimizer::{Change, Operands};
use crate::parameters::Values;
use crate::tools::Tools;
use crate::{Arena, Error, Optimizer, Stage};
use cairn_collectives::{Pending, numbers};
use cairn_kernels::Pool;
use cairn_kernels::elementwise::sum_of_squares;
use cairn_tensor::ReduceOp;
use std::collections::VecDeque;
use std::ops::Range;

/// How many buckets of changed parameters are on their way to other ranks at once.
const MAX_SHARES: usize = 2;

/// Keeps the divisor from zero when gradients are clipped.
const CLIP_EPSILON: f64 = 1e-6;

/// What may differ from step to step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hyper {
    /// How far to go.
    pub learning_rate: f64,
    /// The share of each weight that is taken away per unit of learning rate, where decay applies.
    pub weight_decay: f64,
    /// The greatest norm of all gradients together; larger ones are scaled down to it. No limit if none.
    pub clip: Option<f64>,
    /// Whether to change nothing, whatever the gradients are: the loss is not finite, for example. The same on every rank.
    pub skip: bool,
}

/// What a step did, the same on every rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// The norm of all gradients together, before they were scaled down.
    pub gradient_norm: f64,
    /// Whether they were scaled down.
    pub clipped: bool,
    /// Whether nothing was changed, because a gradient is infinite or no number, or it was to be skipped.
    pub skipped: bool,
}

impl Arena {
    /// Changes the parameters by their gradients, which are then zero again.
    ///
    /// If the norm of all gradients is not finite, or the step is to be skipped, nothing is changed on any rank.
    ///
    /// # Collective
    /// Every rank of the world calls it.
    ///
    /// # Errors
    /// If gradients are not [ready](Arena::ready), or a rank does not come along.
    pub fn step(&mut self, hyper: &Hyper) -> Result<StepReport, Error> {
        let mut gradients = self.collect()?;
        let Tools { pool, buffers, .. } = &self.tools;
        for memory in &mut self.memories {
            memory.parameters.forget(buffers)?;
        }
        for sums in &self.sums {
            sums.apply(&mut gradients, pool, buffers)?;
        }
        let gradient_norm = self.norm(&gradients)?;
        let scale = hyper
            .clip
            .map_or(1.0, |most| clip_scale(gradient_norm, most));
        let skipped = hyper.skip || !gradient_norm.is_finite();
        if !skipped {
            self.updates += 1;
            self.update(&gradients, hyper, scale)?;
        }
        for gradient in gradients {
            self.tools.buffers.give(gradient);
        }
        Ok(StepReport {
            gradient_norm,
            clipped: !skipped && scale < 1.0,
            skipped,
        })
    }

    /// The norm of all gradients of all ranks, every parameter counted once.
    fn norm(&self, gradients: &[Vec<f32>]) -> Result<f64, Error> {
        let groups = &self.groups;
        let is_whole = self.options.stage == Stage::Nothing;
        let mut sum = 0.0;
        for ((memory, gradient), originals) in
            self.memories.iter().zip(gradients).zip(self.originals())
        {
            for ((slot, piece), is_original) in memory.slots().zip(originals) {
                let split = slot.parameter.split.is_some();
                let is_first_replica =
                    (split || groups.tp.rank() == 0) && (!is_whole || groups.dp.rank() == 0);
                if is_original && is_first_replica {
                    sum += sum_of_squares(&self.tools.pool, &gradient[piece.shard]);
                }
            }
        }
        let mut sum = [sum];
        numbers::all_reduce(groups.world.as_ref(), ReduceOp::Sum, &mut sum)?;
        Ok(sum[0].sqrt())
    }

    /// Changes this rank's part of the parameters, and gives it to the others while it works on the next bucket.
    fn update(&mut self, gradients: &[Vec<f32>], hyper: &Hyper, scale: f64) -> Result<(), Error> {
        let change = Change {
            learning_rate: hyper.learning_rate,
            weight_decay: hyper.weight_decay,
            scale,
            count: self.updates,
        };
        let shares = !matches!(self.options.stage, Stage::Nothing | Stage::Parameters);
        let mut sharing: VecDeque<(usize, Pending<Vec<f32>>)> = VecDeque::new();
        for (bucket, gradient) in gradients.iter().enumerate() {
            let memory = &mut self.memories[bucket];
            memory.update(&self.options.optimizer, &change, gradient, &self.tools.pool)?;
            if !shares {
                continue;
            }
            sharing.push_back((bucket, memory.parameters.share(&memory.cut, &self.tools)));
            if sharing.len() > MAX_SHARES {
                let (bucket, pending) = sharing.pop_front().expect("just counted");
                self.memories[bucket].receive(pending, &self.tools)?;
            }
        }
        for (bucket, pending) in sharing {
            self.memories[bucket].receive(pending, &self.tools)?;
        }
        Ok(())
    }
}

impl Memory {
    /// Changes this rank's part of the parameters, and of what is remembered of them.
    fn update(
        &mut self,
        optimizer: &Optimizer,
        change: &Change,
        gradient: &[f32],
        pool: &Pool,
    ) -> Result<(), Error> {
        let places: Vec<Range<usize>> = self.stored().collect();
        let held = self.parameters.held_mut();
        let slots = self.bucket.slots().iter().zip(self.cut.pieces());
        let slots: Vec<_> = slots.zip(places).collect();
        self.remembered.change(|part, lists| {
            for ((slot, piece), stored) in &slots {
                let shard = piece.shard.start.max(part.start)..piece.shard.end.min(part.end);
                if shard.is_empty() {
                    continue;
                }
                let start = stored.start + (shard.start - piece.shard.start);
                let stored = start..start + shard.len();
                let lists = lists.iter_mut();
                let mut lists =
                    lists.map(|list| &mut list[shard.start - part.start..shard.end - part.start]);
                let (values, rounded) = match &mut *held {
                    Values::F32(values) => (&mut values[stored], None),
                    Values::Bf16(values) => {
                        let master = lists.next().expect("narrow parameters have masters");
                        (master, Some(&mut values[stored]))
                    }
                };
                let operands = Operands {
                    values,
                    moments: lists.collect(),
                    rounded,
                };
                let mut change = *change;
                if !slot.parameter.decay {
                    change.weight_decay = 0.0;
                }
                optimizer.apply(pool, &change, &gradient[shard], operands);
            }
            Ok(())
        })
    }

    /// Takes the parameters that all ranks have changed.
    fn receive(&mut self, pending: Pending<Vec<f32>>, tools: &Tools) -> Result<(), Error> {
        let ranked = pending.wait()?;
        self.parameters.receive(&self.cut, &ranked);
        tools.buffers.give(ranked);
        Ok(())
    }
}

/// What gradients are multiplied with so that their norm is at most `most`, as PyTorch's `clip_grad_norm_` has it.
fn clip_scale(norm: f64, most: f64) -> f64 {
    (most / (norm + CLIP_EPSILON)).min(1.0)
}
