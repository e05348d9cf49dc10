//! The memory of one bucket on one rank.

use crate::cut::{Cut, Piece};
use crate::gradients::Gradients;
use crate::init::fill;
use crate::parameters::{Parameters, Values};
use crate::remembered::Remembered;
use crate::state::MASTER;
use crate::{Bucket, Error, Optimizer, Options, Slot, Stage};
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
    /// Whether the first of the lists that are remembered has the parameters in `f32`; none has if they are stored so.
    pub(crate) has_master: bool,
    /// This rank's shard of the masters, and of what the optimizer remembers, by [`Optimizer::moments`](crate::Optimizer).
    pub(crate) remembered: Remembered,
}

impl Memory {
    /// The first values of a bucket, for rank `index` of `parts`.
    pub(crate) fn new(
        bucket: Bucket,
        parts: usize,
        index: usize,
        options: &Options,
    ) -> Result<Self, Error> {
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
        let has_master = options.dtype == DType::Bf16;
        let lists = options.optimizer.moments().len() + usize::from(has_master);
        let mut remembered = Remembered::zeros(lists, cut.len(), options.offload.as_deref())?;
        let values = match has_master {
            true => Values::Bf16(narrowed(pool, &first(held))),
            false => Values::F32(first(held)),
        };
        if has_master {
            let master = first(&cut);
            remembered.change(|part, lists| {
                lists[0].copy_from_slice(&master[part]);
                Ok(())
            })?;
        }
        Ok(Self {
            parameters: Parameters::new(values),
            is_sharded,
            gradients: Gradients::default(),
            has_master,
            remembered,
            cut: Arc::new(cut),
            bucket,
        })
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

    /// What the names of the remembered lists begin with, in order.
    pub(crate) fn prefixes(&self, optimizer: &Optimizer) -> Vec<String> {
        let master = self.has_master.then(|| MASTER.to_string());
        let moments = optimizer.moments().iter();
        let moments = moments.map(|name| format!("optimizer.{name}."));
        master.into_iter().chain(moments).collect()
    }
}

fn narrowed(pool: &Pool, values: &[f32]) -> Vec<u16> {
    let mut narrowed = vec![0; values.len()];
    narrow(pool, values, &mut narrowed);
    narrowed
}
