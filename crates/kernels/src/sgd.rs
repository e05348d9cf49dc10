//! Gradient descent with momentum as one pass over flat memory, computed in the order of `torch.optim.SGD`.

use crate::Pool;
use crate::elementwise::narrow;
use crate::pool::BLOCK;
use crate::real::Real;

/// The numbers of one step of gradient descent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// The learning rate.
    pub learning_rate: f64,
    /// How much of the old direction stays; 0 for none.
    pub momentum: f64,
    /// Whether the gradient is taken one step ahead of the momentum.
    pub nesterov: bool,
    /// The share of each weight that is added to its gradient.
    pub weight_decay: f64,
    /// Multiplies the gradient first, to clip it.
    pub gradient_scale: f64,
}

impl Sgd {
    /// Updates the weights `master` and the directions `momentum_buffer`, zeros before the first step; `rounded` receives the weights as the
    /// bits of `bf16`s.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn update(
        &self,
        pool: &Pool,
        gradient: &[f32],
        master: &mut [f32],
        momentum_buffer: &mut [f32],
        rounded: Option<&mut [u16]>,
    ) {
        assert_eq!(master.len(), gradient.len());
        assert_eq!(momentum_buffer.len(), gradient.len());
        let memory = master
            .chunks_mut(BLOCK)
            .zip(momentum_buffer.chunks_mut(BLOCK));
        let tasks = memory.zip(gradient.chunks(BLOCK));
        pool.each(tasks, |((master, buffer), gradient)| {
            self.block(gradient, master, buffer)
        });
        if let Some(rounded) = rounded {
            narrow(pool, master, rounded);
        }
    }

    fn block(&self, gradient: &[f32], master: &mut [f32], buffer: &mut [f32]) {
        let scale = f32::from_f64(self.gradient_scale);
        let decay = f32::from_f64(self.weight_decay);
        let momentum = f32::from_f64(self.momentum);
        let rate = f32::from_f64(-self.learning_rate);
        for ((master, buffer), &gradient) in master.iter_mut().zip(buffer).zip(gradient) {
            let gradient = gradient * scale + decay * *master;
            *buffer = momentum * *buffer + gradient;
            let direction = if self.nesterov {
                gradient + momentum * *buffer
            } else {
                *buffer
            };
            *master += rate * direction;
        }
    }
}
