//! Dropout: elements set to zero at random, the others made larger, so that the expectation stays.

use crate::random::Stream;
use crate::{Pool, Real};

/// Which elements are dropped: those whose number in the stream is below the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// The random numbers, by the place of an element in the whole tensor.
    pub stream: Stream,
    /// The share of elements that are dropped, in `[0, 1]`.
    pub rate: f64,
}

impl Dropout {
    /// Drops elements of `x`, whose first is at place `first` of the whole tensor, and divides the others by `1 - rate`.
    /// On the gradient of the result it is the backward.
    pub fn apply<R: Real>(&self, pool: &Pool, first: u64, x: &mut [R]) {
        if self.rate <= 0.0 {
            return;
        }
        if self.rate >= 1.0 {
            return x.fill(R::ZERO);
        }
        let threshold = self.threshold();
        let kept = R::from_f64(1.0 / (1.0 - self.rate));
        let factors =
            |words: [u32; 4]| words.map(|word| if word < threshold { R::ZERO } else { kept });
        self.stream
            .join(pool, first, x, factors, |x, factor| *x *= factor);
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rate is below one"
    )]
    fn threshold(&self) -> u32 {
        (self.rate * 2_f64.powi(32)) as u32
    }
}
