//! The gradients of a bucket, from the first backward to the step.

use crate::Error;
use crate::buffers::Buffers;
use crate::cut::Cut;
use crate::tools::Tools;
use cairn_collectives::{Communicator, Pending, numbers};
use cairn_kernels::Pool;
use cairn_kernels::elementwise::add;
use cairn_tensor::ReduceOp;
use std::sync::Arc;

/// The gradients of a bucket.
#[derive(Debug, Default)]
pub(crate) struct Gradients {
    /// What backward adds to: the gradients of this rank's own data.
    own: Option<Vec<f32>>,
    /// This rank's shard of the sum over all ranks, so far.
    sum: Option<Vec<f32>>,
    /// The same, while more is added to it.
    coming: Option<Pending<Vec<f32>>>,
}

impl Gradients {
    /// What backward adds to.
    pub(crate) fn own(&mut self, len: usize, buffers: &Buffers) -> &mut [f32] {
        self.own.get_or_insert_with(|| buffers.zeros(len))
    }

    /// Whether backward has begun to add to gradients that are not being summed.
    pub(crate) fn is_open(&self) -> bool {
        self.own.is_some()
    }

    /// Starts to sum this rank's gradients with those of the others, and to add them to the sum.
    pub(crate) fn reduce(&mut self, cut: &Arc<Cut>, tools: &Tools) -> Result<(), Error> {
        self.settle()?;
        let own = self.own.take();
        let own = own.unwrap_or_else(|| tools.buffers.zeros(cut.whole_len()));
        let (sum, cut) = (self.sum.take(), cut.clone());
        let (buffers, pool) = (tools.buffers.clone(), tools.pool.clone());
        self.coming = Some(tools.reductions.call(move |group| {
            let part = reduced(group, &cut, own, &buffers)?;
            Ok(added(&pool, sum, part, &buffers))
        }));
        Ok(())
    }

    /// Waits for the sum.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        if let Some(pending) = self.coming.take() {
            self.sum = Some(pending.wait()?);
        }
        Ok(())
    }

    /// The sum, if there is any.
    pub(crate) fn take(&mut self) -> Result<Option<Vec<f32>>, Error> {
        self.settle()?;
        Ok(self.sum.take())
    }
}

/// This rank's shard of the sum over all ranks.
fn reduced(
    group: &dyn Communicator,
    cut: &Cut,
    mut own: Vec<f32>,
    buffers: &Buffers,
) -> Result<Vec<f32>, cairn_collectives::Error> {
    if !cut.is_shared() {
        numbers::all_reduce(group, ReduceOp::Sum, &mut own)?;
        return Ok(own);
    }
    let mut ranked = buffers.take(own.len());
    for (from, to) in cut.ranked() {
        ranked[to].copy_from_slice(&own[from]);
    }
    buffers.give(own);
    let mut part = buffers.take(cut.len());
    numbers::reduce_scatter(group, ReduceOp::Sum, &ranked, cut.counts(), &mut part)?;
    buffers.give(ranked);
    Ok(part)
}

fn added(pool: &Pool, sum: Option<Vec<f32>>, part: Vec<f32>, buffers: &Buffers) -> Vec<f32> {
    let Some(mut sum) = sum else {
        return part;
    };
    add(pool, &part, &mut sum);
    buffers.give(part);
    sum
}
