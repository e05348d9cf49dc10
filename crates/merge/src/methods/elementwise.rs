//! Methods that look at one element at a time.

use super::Blend;
use crate::number::{Arithmetic, Real};
use crate::vectors::vectorized;

/// The only input as it is, perhaps scaled.
pub(crate) struct Pass {
    pub(crate) scale: Option<f64>,
}

impl<A: Arithmetic> Blend<A> for Pass {
    fn blend(&self, _first: usize, inputs: &[Vec<A::Real>], out: &mut [A::Real]) {
        out.copy_from_slice(&inputs[0]);
        if let Some(scale) = self.scale {
            let scale = A::Real::of(scale);
            for value in out {
                *value = A::round(*value * scale);
            }
        }
    }
}

/// The weighted sum, perhaps divided by the sum of weights.
pub(crate) struct Linear<A: Arithmetic> {
    weights: Vec<A::Real>,
    divisor: Option<A::Real>,
}

impl<A: Arithmetic> Linear<A> {
    pub(crate) fn new(weights: &[f64], normalize: bool) -> Self {
        let weights: Vec<A::Real> = weights.iter().copied().map(A::Real::of).collect();
        let sum = weights
            .iter()
            .fold(A::Real::default(), |sum, weight| sum + *weight);
        Self {
            weights,
            divisor: normalize.then_some(sum),
        }
    }
}

impl<A: Arithmetic> Blend<A> for Linear<A> {
    fn blend(&self, _first: usize, inputs: &[Vec<A::Real>], out: &mut [A::Real]) {
        out.fill(A::Real::default());
        vectorized(
            #[inline(always)]
            || {
                for (input, weight) in inputs.iter().zip(&self.weights) {
                    for (sum, value) in out.iter_mut().zip(input) {
                        *sum = sum.add_product(*value, *weight);
                    }
                }
                for sum in out {
                    *sum = A::round(match self.divisor {
                        Some(divisor) => *sum / divisor,
                        None => *sum,
                    });
                }
            },
        );
    }
}

/// The base, pulled to the other model where they are close.
pub(crate) struct NearSwap<R> {
    pub(crate) t: R,
}

impl<A: Arithmetic> Blend<A> for NearSwap<A::Real> {
    fn blend(&self, _first: usize, inputs: &[Vec<A::Real>], out: &mut [A::Real]) {
        let (zero, one, least) = (A::Real::default(), A::Real::of(1.0), A::of(1e-6));
        let pairs = inputs[0].iter().zip(&inputs[1]);
        for (out, (base, other)) in out.iter_mut().zip(pairs) {
            let distance = A::round(*base - *other).abs();
            let distance = if distance < least { least } else { distance };
            // A number over a tensor is its reciprocal, times the number.
            let weight = A::round(A::round(one / distance) * self.t);
            let weight = match weight {
                weight if weight < zero => zero,
                weight if weight > one => one,
                weight => weight,
            };
            let pulled = A::round(weight * *other);
            let kept = A::round(A::round(one - weight) * *base);
            *out = A::round(pulled + kept);
        }
    }
}
