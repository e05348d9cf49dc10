//! The AdamW step as one pass over flat memory, computed in the order of `torch.optim.AdamW`.

use crate::Pool;
use crate::elementwise::to_bf16;
use crate::pool::BLOCK;
use crate::real::Real;

/// The numbers of one AdamW step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// The learning rate.
    pub learning_rate: f64,
    /// How much of the old averages stays.
    pub betas: [f64; 2],
    /// Added to the root of the second average.
    pub epsilon: f64,
    /// The share of each weight, times the learning rate, that is taken away first.
    pub weight_decay: f64,
    /// The number of this step, from 1.
    pub step: u64,
    /// Multiplies the gradient first, to clip it.
    pub gradient_scale: f64,
}

/// The memory of a step: slices of one length.
#[derive(Debug)]
pub struct AdamWState<'a> {
    /// The weights.
    pub master: &'a mut [f32],
    /// The average of the gradients.
    pub exp_avg: &'a mut [f32],
    /// The average of the squares of the gradients.
    pub exp_avg_sq: &'a mut [f32],
}

impl AdamW {
    /// Updates weights and averages; `rounded` receives the weights as the bits of `bf16`s.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn update(
        &self,
        pool: &Pool,
        gradient: &[f32],
        state: AdamWState<'_>,
        rounded: Option<&mut [u16]>,
    ) {
        let len = gradient.len();
        assert_eq!(state.master.len(), len);
        assert_eq!(state.exp_avg.len(), len);
        assert_eq!(state.exp_avg_sq.len(), len);
        let rule = self.rule();
        let averages = state
            .exp_avg
            .chunks_mut(BLOCK)
            .zip(state.exp_avg_sq.chunks_mut(BLOCK));
        let tasks = state
            .master
            .chunks_mut(BLOCK)
            .zip(averages)
            .zip(gradient.chunks(BLOCK));
        match rounded {
            None => pool.each(tasks, |((master, averages), gradient)| {
                rule.block(gradient, master, averages);
            }),
            Some(rounded) => {
                assert_eq!(rounded.len(), len);
                let tasks = tasks.zip(rounded.chunks_mut(BLOCK));
                pool.each(tasks, |(((master, averages), gradient), rounded)| {
                    rule.block(gradient, master, averages);
                    for (rounded, &master) in rounded.iter_mut().zip(&*master) {
                        *rounded = to_bf16(master);
                    }
                });
            }
        }
    }

    fn rule(&self) -> Rule {
        let [beta1, beta2] = self.betas;
        let correction = |beta: f64| 1.0 - beta.powf(self.step as f64);
        Rule {
            gradient_scale: f32::from_f64(self.gradient_scale),
            decay: f32::from_f64(1.0 - self.learning_rate * self.weight_decay),
            beta1_rest: f32::from_f64(1.0 - beta1),
            beta2: f32::from_f64(beta2),
            beta2_rest: f32::from_f64(1.0 - beta2),
            root: f32::from_f64(correction(beta2).sqrt()),
            epsilon: f32::from_f64(self.epsilon),
            rate: f32::from_f64(-self.learning_rate / correction(beta1)),
        }
    }
}

/// The numbers of a step as the elements meet them.
#[derive(Clone, Copy)]
struct Rule {
    gradient_scale: f32,
    decay: f32,
    beta1_rest: f32,
    beta2: f32,
    beta2_rest: f32,
    root: f32,
    epsilon: f32,
    rate: f32,
}

impl Rule {
    fn block(self, gradient: &[f32], master: &mut [f32], averages: (&mut [f32], &mut [f32])) {
        let averages = averages.0.iter_mut().zip(averages.1);
        for ((master, (mean, square)), &gradient) in master.iter_mut().zip(averages).zip(gradient) {
            let gradient = gradient * self.gradient_scale;
            *mean = self.lerp(*mean, gradient);
            *square = *square * self.beta2 + self.beta2_rest * gradient * gradient;
            let denominator = square.sqrt() / self.root + self.epsilon;
            *master = *master * self.decay + self.rate * *mean / denominator;
        }
    }

    /// `mean` on the way to `gradient`, from the nearer end, so that the ends are exact.
    #[inline(always)]
    fn lerp(self, mean: f32, gradient: f32) -> f32 {
        let way = gradient - mean;
        if self.beta1_rest < 0.5 {
            mean + self.beta1_rest * way
        } else {
            gradient - way * (1.0 - self.beta1_rest)
        }
    }
}
