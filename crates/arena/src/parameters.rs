//! The parameters of a bucket as they are stored, and as blocks use them.

use crate::Error;
use crate::buffers::Buffers;
use crate::cut::Cut;
use crate::tools::Tools;
use bytemuck::{cast_slice, cast_slice_mut};
use cairn_collectives::{Communicator, Pending};
use cairn_kernels::elementwise::widen;
use std::sync::Arc;

/// Stored numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Values {
    F32(Vec<f32>),
    Bf16(Vec<u16>),
}

impl Values {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::F32(values) => cast_slice(values),
            Self::Bf16(values) => cast_slice(values),
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::F32(values) => cast_slice_mut(values),
            Self::Bf16(values) => cast_slice_mut(values),
        }
    }

    /// The bytes of one number.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::F32(_) => 4,
            Self::Bf16(_) => 2,
        }
    }
}

/// The parameters of a bucket: all of them, or this rank's shard, and the `f32` of all of them while a block uses them.
#[derive(Debug)]
pub(crate) struct Parameters {
    /// Shared with gathers and saves in the background.
    pub(crate) held: Arc<Values>,
    lent: Lent,
}

/// What a block is lent.
#[derive(Debug, Default)]
enum Lent {
    #[default]
    Nothing,
    Coming(Pending<Vec<f32>>),
    Here(Vec<f32>),
}

impl Parameters {
    pub(crate) fn new(held: Values) -> Self {
        Self {
            held: Arc::new(held),
            lent: Lent::Nothing,
        }
    }

    /// Starts to gather the shards of all ranks, unless that is done.
    pub(crate) fn gather(&mut self, cut: &Arc<Cut>, tools: &Tools) {
        if !matches!(self.lent, Lent::Nothing) {
            return;
        }
        let (held, cut) = (self.held.clone(), cut.clone());
        let (buffers, pool) = (tools.buffers.clone(), tools.pool.clone());
        self.lent = Lent::Coming(tools.gathers.call(move |group| {
            let ranked = all_gather(group, &cut, held.bytes(), held.width(), &buffers)?;
            let mut whole = buffers.take(cut.whole_len());
            for (to, from) in cut.ranked() {
                match *held {
                    Values::F32(_) => whole[to].copy_from_slice(&ranked[from]),
                    Values::Bf16(_) => {
                        widen(&pool, &cast_slice(&ranked)[from], &mut whole[to]);
                    }
                }
            }
            buffers.give(ranked);
            Ok(whole)
        }));
    }

    /// Makes all parameters ready to be used: waits for them, or widens them.
    pub(crate) fn lend(&mut self, tools: &Tools) -> Result<(), Error> {
        self.lent = match (std::mem::take(&mut self.lent), self.held.as_ref()) {
            (Lent::Coming(pending), _) => Lent::Here(pending.wait()?),
            (Lent::Nothing, Values::Bf16(values)) => {
                let mut whole = tools.buffers.take(values.len());
                widen(&tools.pool, values, &mut whole);
                Lent::Here(whole)
            }
            (lent, _) => lent,
        };
        Ok(())
    }

    /// All parameters, once they are [lent](Self::lend).
    pub(crate) fn weights(&self) -> &[f32] {
        match (&self.lent, self.held.as_ref()) {
            (Lent::Here(whole), _) => whole,
            (_, Values::F32(values)) => values,
            (_, Values::Bf16(_)) => &[],
        }
    }

    /// Gives back what is lent; what is coming may come.
    pub(crate) fn release(&mut self, buffers: &Buffers) {
        match std::mem::take(&mut self.lent) {
            Lent::Here(whole) => buffers.give(whole),
            lent => self.lent = lent,
        }
    }

    /// Gives back what is lent or coming: it is about to be out of date.
    pub(crate) fn forget(&mut self, buffers: &Buffers) -> Result<(), Error> {
        match std::mem::take(&mut self.lent) {
            Lent::Here(whole) => buffers.give(whole),
            Lent::Coming(pending) => buffers.give(pending.wait()?),
            Lent::Nothing => {}
        }
        Ok(())
    }

    /// The stored numbers, to change.
    pub(crate) fn held_mut(&mut self) -> &mut Values {
        Arc::make_mut(&mut self.held)
    }

    /// Starts to give the others this rank's pieces of parameters that all hold whole.
    pub(crate) fn share(&self, cut: &Arc<Cut>, tools: &Tools) -> Pending<Vec<f32>> {
        let width = self.held.width();
        let mut own = tools.buffers.take((cut.len() * width).div_ceil(4));
        let bytes = &mut cast_slice_mut::<f32, u8>(&mut own)[..cut.len() * width];
        for piece in cut.pieces() {
            let from = &self.held.bytes()[piece.whole.start * width..piece.whole.end * width];
            bytes[piece.shard.start * width..piece.shard.end * width].copy_from_slice(from);
        }
        let (cut, buffers) = (cut.clone(), tools.buffers.clone());
        tools.gathers.call(move |group| {
            let bytes = &cast_slice(&own)[..cut.len() * width];
            let ranked = all_gather(group, &cut, bytes, width, &buffers)?;
            buffers.give(own);
            Ok(ranked)
        })
    }

    /// Takes what all have [shared](Self::share).
    pub(crate) fn receive(&mut self, cut: &Cut, ranked: &[f32]) {
        let width = self.held.width();
        let ranked: &[u8] = cast_slice(ranked);
        let held = self.held_mut().bytes_mut();
        for (to, from) in cut.ranked() {
            held[to.start * width..to.end * width]
                .copy_from_slice(&ranked[from.start * width..from.end * width]);
        }
    }
}

/// The shards of all ranks, one after another, in the bytes of a buffer.
fn all_gather(
    group: &dyn Communicator,
    cut: &Cut,
    shard: &[u8],
    width: usize,
    buffers: &Buffers,
) -> Result<Vec<f32>, cairn_collectives::Error> {
    let lens: Vec<usize> = cut.counts().iter().map(|count| count * width).collect();
    let len: usize = lens.iter().sum();
    let mut ranked = buffers.take(len.div_ceil(4));
    group.all_gather(shard, &lens, &mut cast_slice_mut(&mut ranked)[..len])?;
    Ok(ranked)
}
