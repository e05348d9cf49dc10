//! SCE: select the changes that vary most between models, weight models by the energy of theirs, erase those against the majority.

use super::Blend;
use super::tasks::changes;
use crate::Error;
use crate::number::{Arithmetic, Real};
use crate::operands::{Block, Operands};
use crate::passes::{blocks, map};
use crate::select::{Streams, key, places, ranked};

/// Below this, energies are not told apart.
const LEAST_ENERGY: f64 = 1e-6;

/// Which elements are selected, and the weight of each model.
pub(super) struct Sce {
    /// Keys of variances above `key` are selected, and of those equal to it the ones before element `until`; all if `None`.
    selected: Option<(u64, usize)>,
    weights: Vec<f64>,
}

impl Sce {
    pub(super) fn prepare<A: Arithmetic>(operands: &Operands, share: f64) -> Result<Self, Error> {
        let models = operands.inputs.len() - 1;
        let mut sce = Self {
            selected: (share < 1.0)
                .then(|| select::<A>(operands, share))
                .transpose()?,
            weights: Vec::new(),
        };
        let energies = map(
            operands.threads,
            blocks(operands.elements),
            Block::<A>::new,
            |block, elements| {
                let first = elements.start;
                let inputs = block.load(operands, elements)?;
                let energy = |changes: Vec<A::Real>| {
                    let square = |value: A::Real| A::round(value * value).f64();
                    changes.into_iter().map(square).sum::<f64>()
                };
                Ok(sce
                    .changes::<A>(first, inputs)
                    .into_iter()
                    .map(energy)
                    .collect::<Vec<_>>())
            },
        )?;
        let mean = |model: usize| {
            let sum: f64 = energies.iter().map(|energies| energies[model]).sum();
            A::of(sum / operands.elements.max(1) as f64).f64()
        };
        let means: Vec<f64> = (0..models).map(mean).collect();
        let sum = A::of(means.iter().sum()).f64();
        let weight = |mean: &f64| match sum.abs() < LEAST_ENERGY {
            true => A::of(1.0 / models as f64).f64(),
            false => A::of(mean / sum).f64(),
        };
        sce.weights = means.iter().map(weight).collect();
        Ok(sce)
    }

    /// The changes of every model, zero where they are not selected.
    fn changes<A: Arithmetic>(&self, first: usize, inputs: &[Vec<A::Real>]) -> Vec<Vec<A::Real>> {
        let of = |model| changes::<A>(inputs, true, model).collect();
        let mut all: Vec<Vec<A::Real>> = (0..inputs.len() - 1).map(of).collect();
        if let Some((least, until)) = self.selected {
            let len = inputs[0].len();
            for at in 0..len {
                let key = key::<A>(variance::<A>(&all, at));
                if key < least || (key == least && first + at >= until) {
                    all.iter_mut()
                        .for_each(|values| values[at] = A::Real::default());
                }
            }
        }
        all
    }
}

/// The variance of one element over the models.
fn variance<A: Arithmetic>(changes: &[Vec<A::Real>], at: usize) -> A::Real {
    let count = changes.len() as f64;
    let mean = changes.iter().map(|values| values[at].f64()).sum::<f64>() / count;
    let square = |values: &Vec<A::Real>| (values[at].f64() - mean).powi(2);
    A::of(changes.iter().map(square).sum::<f64>() / count)
}

/// The least variance that is selected, and the element before which an equal one is.
fn select<A: Arithmetic>(operands: &Operands, share: f64) -> Result<(u64, usize), Error> {
    let none = (u64::MAX, 0);
    let keys = |inputs: &[Vec<A::Real>], _: usize, _: usize, keys: &mut Vec<u64>| {
        let of = |model| changes::<A>(inputs, true, model).collect();
        let all: Vec<Vec<A::Real>> = (0..inputs.len() - 1).map(of).collect();
        keys.clear();
        keys.extend((0..inputs[0].len()).map(|at| key::<A>(variance::<A>(&all, at))));
    };
    let streams = Streams::<A> {
        keys: &keys,
        bits: A::KEY_BITS,
    };
    if operands.elements == 0 || share <= 0.0 {
        return Ok(none);
    }
    let zero = key::<A>(A::Real::default());
    let zeros = match ranked(operands, &streams, &[(0, 0)])?[0] {
        smallest if smallest.key == zero => smallest.equal,
        _ => 0,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a number of elements"
    )]
    let count = ((operands.elements - zeros) as f64 * share) as usize;
    if count == 0 {
        return Ok(none);
    }
    let rank = operands.elements - count;
    let found = ranked(operands, &streams, &[(0, rank)])?[0];
    let stay = found.equal - (rank - found.less);
    let until = places(operands, &streams, &[(0, found.key, stay)])?[0];
    Ok((found.key, until))
}

impl<A: Arithmetic> Blend<A> for Sce {
    fn blend(&self, first: usize, inputs: &[Vec<A::Real>], out: &mut [A::Real]) {
        let zero = A::Real::default();
        let all = self.changes::<A>(first, inputs);
        let least = A::of(1e-6);
        for (at, out) in out.iter_mut().enumerate() {
            let vote = all.iter().fold(zero, |sum, values| sum + values[at]);
            let positive = vote >= zero;
            let (mut sum, mut weights) = (zero, zero);
            for (values, weight) in all.iter().zip(&self.weights) {
                let value = values[at];
                let agrees = if positive { value > zero } else { value < zero };
                if agrees {
                    let weight = A::Real::of(*weight);
                    sum = sum + A::round(value * weight);
                    weights = weights + weight;
                }
            }
            let (sum, weights) = (A::round(sum), A::round(weights));
            let weights = if weights < least { least } else { weights };
            *out = A::round(inputs[0][at] + A::round(sum / weights));
        }
    }
}
