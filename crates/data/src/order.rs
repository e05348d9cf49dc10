//! Which sample comes when: a permutation for each epoch that is computed, not stored.

use crate::Error;
use cairn_random::{halves, philox};

/// The most samples that can be put in an order.
pub const MAX_SAMPLES: u64 = 1 << 63;

/// How often the halves of a number are mixed.
const ROUNDS: u32 = 8;
/// Halves of fewer bits have too few values to mix well; few samples are found among more numbers then.
const MIN_HALF_BITS: u32 = 4;
/// Keeps these random numbers apart from all others of the same seed.
const PURPOSE: u32 = 0x0DA7_A000;

/// The order of `0..count` in every epoch, in no memory.
///
/// With a seed each epoch has an order of its own, a Feistel network over Philox: the two halves of a number are mixed by turns, which can be undone
/// and is therefore a permutation of all numbers of that many bits. Results that are no sample are mixed again until one is (at most three more times on average, with 256 samples or more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    count: u64,
    seed: Option<u64>,
    half_bits: u32,
}

impl Order {
    /// A random order of `count` samples, another in each epoch; without a seed, one after another.
    ///
    /// # Errors
    /// If there are no samples, or more than [`MAX_SAMPLES`].
    pub fn new(count: u64, seed: Option<u64>) -> Result<Self, Error> {
        if !(1..=MAX_SAMPLES).contains(&count) {
            return Err(Error::Limit {
                what: "the number of samples",
                value: count,
                least: 1,
                most: MAX_SAMPLES,
            });
        }
        let bits = u64::BITS - (count - 1).leading_zeros();
        let half_bits = bits.div_ceil(2).max(MIN_HALF_BITS);
        Ok(Self {
            count,
            seed,
            half_bits,
        })
    }

    /// How many samples an epoch has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The epoch that a position belongs to, and the sample there.
    pub fn at(&self, position: u64) -> (u64, u64) {
        let epoch = position / self.count;
        let mut index = position % self.count;
        let Some(seed) = self.seed else {
            return (epoch, index);
        };
        loop {
            index = self.mix(index, seed, epoch);
            if index < self.count {
                return (epoch, index);
            }
        }
    }

    /// A permutation of all numbers of twice `half_bits` bits.
    fn mix(&self, number: u64, seed: u64, epoch: u64) -> u64 {
        let mask = u32::MAX >> (u32::BITS - self.half_bits);
        let [epoch_low, epoch_high] = halves(epoch);
        let [mut left, _] = halves(number >> self.half_bits);
        let mut right = halves(number)[0] & mask;
        for round in 0..ROUNDS {
            let counter = [right, PURPOSE | round, epoch_low, epoch_high];
            let mixed = left ^ (philox(halves(seed), counter)[0] & mask);
            (left, right) = (right, mixed);
        }
        u64::from(left) << self.half_bits | u64::from(right)
    }
}

#[cfg(test)]
mod tests;
