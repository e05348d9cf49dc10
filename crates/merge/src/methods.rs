//! The merge methods, each in two steps: what it has to know of whole tensors, then block after block.

mod combine;
mod elementwise;
mod fusion;
mod keep;
mod sce;
mod tasks;

use crate::Error;
use crate::number::{Arithmetic, Real};
use crate::operands::Operands;

pub(crate) use combine::{Combine, Rule};
pub(crate) use keep::{Rescale, Thinning};
pub(crate) use tasks::{Election, Task, Tasks};

/// A method with its parameters for one tensor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Method {
    /// The only input as it is, perhaps scaled.
    Pass { scale: Option<f64> },
    /// The weighted sum, divided by the sum of weights if `normalize`.
    Linear { weights: Vec<f64>, normalize: bool },
    /// A combination whose factors follow from the inner products of the inputs.
    Combine(Combine),
    /// The base and what is made of the changes to it.
    Tasks(Tasks),
    /// The changes that vary most, weighted by their energy.
    Sce { select_topk: f64 },
    /// The base, pulled to the other model where they are close.
    NearSwap { t: f64 },
    /// The base, with the most important changes of the other model.
    Fusion,
}

impl Method {
    /// How often the inputs are read.
    pub(crate) fn passes(&self, key_bits: u32) -> u64 {
        let select = u64::from(key_bits / 16) + 1;
        match self {
            Method::Pass { .. } | Method::Linear { .. } | Method::NearSwap { .. } => 1,
            Method::Combine(_) => 2,
            Method::Tasks(tasks) => 1 + tasks.statistics_passes(select),
            Method::Sce { select_topk } if *select_topk >= 1.0 => 2,
            Method::Sce { .. } => 3 + select,
            Method::Fusion => 4,
        }
    }

    /// Learns what the method has to know of the whole tensors.
    pub(crate) fn prepare<A: Arithmetic>(
        &self,
        operands: &Operands,
    ) -> Result<Box<dyn Blend<A>>, Error> {
        Ok(match self {
            Method::Pass { scale } => Box::new(elementwise::Pass { scale: *scale }),
            Method::Linear { weights, normalize } => {
                Box::new(elementwise::Linear::<A>::new(weights, *normalize))
            }
            Method::NearSwap { t } => Box::new(elementwise::NearSwap { t: A::Real::of(*t) }),
            Method::Combine(combine) => Box::new(combine.prepare::<A>(operands)?),
            Method::Tasks(tasks) => Box::new(tasks.prepare::<A>(operands)?),
            Method::Sce { select_topk } => {
                Box::new(sce::Sce::prepare::<A>(operands, *select_topk)?)
            }
            Method::Fusion => Box::new(fusion::Fusion::prepare::<A>(operands)?),
        })
    }
}

/// A method that knows all it needs of whole tensors.
pub(crate) trait Blend<A: Arithmetic>: Send + Sync {
    /// Works out `out`, the elements from `first` on, from the same elements of every input.
    fn blend(&self, first: usize, inputs: &[Vec<A::Real>], out: &mut [A::Real]);
}

#[cfg(test)]
mod tests;
