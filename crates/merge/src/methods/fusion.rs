//! Arcee fusion: takes from the other model the changes that matter most.
//!
//! A change matters by its size times how much its row, read as a distribution, diverges from the base's. Those beyond the median
//! by one and a half times the distance of the quartiles are taken. Quartiles are exact, however large a tensor is.

use super::Blend;
use crate::Error;
use crate::number::{Arithmetic, Real};
use crate::operands::{Block, Lanes, Operands};
use crate::passes::{BLOCK, map};
use crate::select::{Streams, ranked};

/// Added to every probability, so that none is zero.
const LEAST_PROBABILITY: f32 = 1e-8;

/// The divergence of each row, and from which importance on a change is taken.
pub(super) struct Fusion {
    rows: Lanes,
    divergences: Vec<f32>,
    threshold: f32,
}

impl Fusion {
    pub(super) fn prepare<A: Arithmetic>(operands: &Operands) -> Result<Self, Error> {
        let rows = Lanes::rows(&operands.shape);
        let mut fusion = Self {
            rows,
            divergences: divergences::<A>(operands, rows)?,
            threshold: f32::INFINITY,
        };
        if operands.elements == 0 {
            return Ok(fusion);
        }
        let keys = |inputs: &[Vec<A::Real>], first: usize, _: usize, keys: &mut Vec<u64>| {
            keys.clear();
            let importance = |at| fusion.importance::<A>(first, inputs, at).key();
            keys.extend((0..inputs[0].len()).map(importance));
        };
        let streams = Streams::<A> {
            keys: &keys,
            bits: f32::KEY_BITS,
        };
        let rank = |quarters: usize| (0, quarters * (operands.elements - 1) / 4);
        let found = ranked(operands, &streams, &[rank(1), rank(2), rank(3)])?;
        let [first, median, third] = [0, 1, 2].map(|index| number(found[index].key));
        fusion.threshold = median + 1.5 * (third - first);
        Ok(fusion)
    }

    fn importance<A: Arithmetic>(&self, first: usize, inputs: &[Vec<A::Real>], at: usize) -> f32 {
        let change = A::round(inputs[1][at] - inputs[0][at]).f64().abs();
        f32::of(change) * self.divergences[self.rows.of(first + at)]
    }
}

/// The number that has a key.
fn number(key: u64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "the key of an f32")]
    let key = key as u32;
    let flip = if key >> 31 == 1 { 1 << 31 } else { u32::MAX };
    f32::from_bits(key ^ flip)
}

/// How much each row of the other model diverges from the base's.
fn divergences<A: Arithmetic>(operands: &Operands, rows: Lanes) -> Result<Vec<f32>, Error> {
    let groups = rows.groups(operands.elements, BLOCK);
    let found = map(
        operands.threads,
        groups,
        Block::<A>::new,
        |block, elements| {
            let inputs = block.load(operands, elements)?;
            let pairs = inputs[0]
                .chunks(rows.stretch())
                .zip(inputs[1].chunks(rows.stretch()));
            Ok(pairs
                .map(|(base, other)| divergence(other, base))
                .collect::<Vec<_>>())
        },
    )?;
    Ok(found.concat())
}

/// The divergence of one row, as the logits of a distribution, from another.
fn divergence<R: Real>(of: &[R], from: &[R]) -> f32 {
    let (of, from) = (distribution(of), distribution(from));
    let term = |(p, q): (f32, f32)| f64::from(p * (p / q).ln());
    f32::of(of.zip(from).map(term).sum())
}

fn distribution<R: Real>(logits: &[R]) -> impl Iterator<Item = f32> + '_ {
    let largest = logits
        .iter()
        .map(|value| value.f64())
        .fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits
        .iter()
        .map(|value| (value.f64() - largest).exp())
        .sum();
    let share = move |value: &R| f32::of((value.f64() - largest).exp() / sum) + LEAST_PROBABILITY;
    logits.iter().map(share)
}

impl<A: Arithmetic> Blend<A> for Fusion {
    fn blend(&self, first: usize, inputs: &[Vec<A::Real>], out: &mut [A::Real]) {
        for (at, out) in out.iter_mut().enumerate() {
            let (base, other) = (inputs[0][at], inputs[1][at]);
            let is_taken = self.importance::<A>(first, inputs, at) >= self.threshold;
            *out = match is_taken {
                true => A::round(base + A::round(other - base)),
                false => base,
            };
        }
    }
}
