//! How parameters follow their gradients.

use cairn_kernels::Pool;
use cairn_kernels::adamw::{AdamW, AdamWState};
use cairn_kernels::sgd::Sgd;

/// How parameters follow their gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// Adam with decoupled weight decay, as `torch.optim.AdamW`.
    AdamW {
        /// How much of its averages each step keeps.
        betas: [f64; 2],
        /// Keeps the divisor from zero.
        epsilon: f64,
    },
    /// Stochastic gradient descent, as `torch.optim.SGD`.
    Sgd {
        /// How much of its direction each step keeps.
        momentum: f64,
        /// Whether the gradient is taken one step ahead of the momentum.
        nesterov: bool,
    },
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::AdamW {
            betas: [0.9, 0.95],
            epsilon: 1e-8,
        }
    }
}

/// The numbers of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) learning_rate: f64,
    pub(crate) weight_decay: f64,
    /// What gradients are multiplied with first.
    pub(crate) scale: f64,
    /// The number of this change, from 1.
    pub(crate) count: u64,
}

/// The memory that a change works on: slices of one length.
#[derive(Debug)]
pub(crate) struct Operands<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) moments: Vec<&'a mut [f32]>,
    /// Receives the values as `bf16`.
    pub(crate) rounded: Option<&'a mut [u16]>,
}

impl Optimizer {
    /// What it remembers of each parameter, by name.
    pub fn moments(&self) -> &'static [&'static str] {
        match self {
            Self::AdamW { .. } => &["exp_avg", "exp_avg_sq"],
            Self::Sgd { .. } => &["momentum_buffer"],
        }
    }

    pub(crate) fn apply(
        &self,
        pool: &Pool,
        change: &Change,
        gradient: &[f32],
        operands: Operands<'_>,
    ) {
        let Operands {
            values,
            moments,
            rounded,
        } = operands;
        let mut moments = moments.into_iter();
        let mut moment = || moments.next().expect("there is a slice for each moment");
        match *self {
            Self::AdamW { betas, epsilon } => {
                let rule = AdamW {
                    learning_rate: change.learning_rate,
                    betas,
                    epsilon,
                    weight_decay: change.weight_decay,
                    step: change.count,
                    gradient_scale: change.scale,
                };
                let state = AdamWState {
                    master: values,
                    exp_avg: moment(),
                    exp_avg_sq: moment(),
                };
                rule.update(pool, gradient, state, rounded);
            }
            Self::Sgd { momentum, nesterov } => {
                let rule = Sgd {
                    learning_rate: change.learning_rate,
                    momentum,
                    nesterov,
                    weight_decay: change.weight_decay,
                    gradient_scale: change.scale,
                };
                rule.update(pool, gradient, values, moment(), rounded);
            }
        }
    }
}
