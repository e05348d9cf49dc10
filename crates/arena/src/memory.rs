//! The memory of one bucket on one rank.

use crate::cut::{Cut, Piece};
use crate::gradients::Gradients;
use crate::init::fill;
use crate::parameters::{Parameters, Values};
use crate::state::MASTER;
use crate::{Bucket, Optimizer, Options, Slot, Stage};
use cairn_kernels::Pool;
use cairn_kernels::elementwise::narrow;
use cairn_tensor::DType;
use std::ops::Range;
use std::sync::Arc;

/// The memory of one bucket on one rank. What is saved is shared with the save, as long as that takes.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) bucket: Bucket,
    /// How state is shared out; in one part if it is not.
    pub(crate) cut: Arc<Cut>,
    pub(crate) parameters: Parameters,
    /// Whether only this rank's shard of the parameters is held.
    is_sharded: bool,
    pub(crate) gradients: Gradients,
    /// This rank's shard of the parameters in `f32`; none if they are stored so.
    pub(crate) master: Option<Arc<Vec<f32>>>,
    /// This rank's shard of what the optimizer remembers, by [`Optimizer::moments`](crate::Optimizer).
    pub(crate) moments: Vec<Arc<Vec<f32>>>,
}

impl Memory {
    /// The first values of a bucket, for rank `index` of `parts`.
    pub(crate) fn new(bucket: Bucket, parts: usize, index: usize, options: &Options) -> Self {
        let cut = Cut::new(&bucket, parts, index);
        let whole = Cut::new(&bucket, 1, 0);
        let is_sharded = options.stage == Stage::Parameters;
        let held = if is_sharded { &cut } else { &whole };
        let (seed, pool) = (options.seed, &options.pool);
        let first = |cut: &Cut| {
            let mut values = vec![0.0; cut.len()];
            for (slot, piece) in bucket.slots().iter().zip(cut.pieces()) {
                let start = slot.range.start;
                let elements = piece.whole.start - start..piece.whole.end - start;
                fill(pool, seed, slot, elements, &mut values[piece.shard]);
            }
            values
        };
        let (values, master) = match options.dtype {
            DType::Bf16 => (
                Values::Bf16(narrowed(pool, &first(held))),
                Some(Arc::new(first(&cut))),
            ),
            _ => (Values::F32(first(held)), None),
        };
        let moments = options.optimizer.moments();
        Self {
            moments: moments
                .iter()
                .map(|_| Arc::new(vec![0.0; cut.len()]))
                .collect(),
            parameters: Parameters::new(values),
            is_sharded,
            gradients: Gradients::default(),
            master,
            cut: Arc::new(cut),
            bucket,
        }
    }

    /// The parameters, each with the piece of it that this rank's part of the optimizer works on.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (&Slot, Piece)> {
        self.bucket.slots().iter().zip(self.cut.pieces())
    }

    /// Where those pieces lie among the stored parameters.
    pub(crate) fn stored(&self) -> impl Iterator<Item = Range<usize>> {
        self.cut.pieces().map(|piece| match self.is_sharded {
            true => piece.shard,
            false => piece.whole,
        })
    }

    /// Where all that is stored of each parameter lies.
    pub(crate) fn held(&self) -> impl Iterator<Item = Range<usize>> {
        self.slots().map(|(slot, piece)| match self.is_sharded {
            true => piece.shard,
            false => slot.range.clone(),
        })
    }

    /// Master weights and moments, each with what their names begin with.
    pub(crate) fn state(
        &self,
        optimizer: &Optimizer,
    ) -> impl Iterator<Item = (String, &Arc<Vec<f32>>)> {
        let master = self
            .master
            .iter()
            .map(|values| (MASTER.to_string(), values));
        let moments = optimizer.moments().iter().zip(&self.moments);
        master.chain(moments.map(|(name, values)| (format!("optimizer.{name}."), values)))
    }

    /// As [`state`](Self::state), to change.
    pub(crate) fn state_mut(
        &mut self,
        optimizer: &Optimizer,
    ) -> impl Iterator<Item = (String, &mut [f32])> {
        let master = self.master.iter_mut();
        let master = master.map(|values| (MASTER.to_string(), values));
        let moments = optimizer.moments().iter().zip(&mut self.moments);
        let moments = moments.map(|(name, values)| (format!("optimizer.{name}."), values));
        let all = master.chain(moments);
        all.map(|(prefix, values)| (prefix, &mut Arc::make_mut(values)[..]))
    }
}

fn narrowed(pool: &Pool, values: &[f32]) -> Vec<u16> {
    let mut narrowed = vec![0; values.len()];
    narrow(pool, values, &mut narrowed);
    narrowed
}
