//! Random numbers by their place: the same element gets the same number, whoever asks and in whatever order.

use cairn_random::blocks;
use sha2::{Digest, Sha256};

/// Numbers of a block, which share a counter.
const WORDS: usize = 4;

/// Blocks worked out at once.
const LANES: usize = 8;

/// Numbers of those blocks.
const NUMBERS: usize = LANES * WORDS;

/// The random numbers of one tensor of one model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    key: [u32; 2],
}

impl Stream {
    /// The stream for the model number `model` in the tensor `name`.
    pub(crate) fn new(seed: u64, name: &str, model: usize) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        hash.update((model as u64).to_le_bytes());
        hash.update(name.as_bytes());
        let hash = hash.finalize();
        let word =
            |at: usize| u32::from_le_bytes([hash[at], hash[at + 1], hash[at + 2], hash[at + 3]]);
        Self {
            key: [word(0), word(4)],
        }
    }

    /// Fills `numbers` with those of the elements from `first` on, each below 2³².
    #[inline(always)]
    pub(crate) fn fill(self, first: usize, numbers: &mut [u32]) {
        let skipped = first % WORDS;
        let (head, rest) = numbers.split_at_mut(((WORDS - skipped) % WORDS).min(numbers.len()));
        let counter = first as u64 / WORDS as u64;
        if !head.is_empty() {
            head.copy_from_slice(&self.blocks(counter).as_flattened()[skipped..][..head.len()]);
        }
        let counter = counter + u64::from(skipped > 0);
        let (whole, tail) = rest.as_chunks_mut::<NUMBERS>();
        let last = counter + (whole.len() * LANES) as u64;
        for (index, numbers) in whole.iter_mut().enumerate() {
            numbers.copy_from_slice(self.blocks(counter + (index * LANES) as u64).as_flattened());
        }
        if !tail.is_empty() {
            tail.copy_from_slice(&self.blocks(last).as_flattened()[..tail.len()]);
        }
    }

    /// The numbers of some blocks from `counter` on.
    #[inline(always)]
    fn blocks(self, counter: u64) -> [[u32; WORDS]; LANES] {
        blocks(self.key, counter, [0; 2])
    }
}

/// The number below which a random number falls with probability `probability`.
pub(crate) fn threshold(probability: f64) -> u64 {
    let scaled = probability.clamp(0.0, 1.0) * 4_294_967_296.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range of 33 bits"
    )]
    let whole = scaled as u64;
    // Rounded without a call into the mathematical library, which took longer than all the rest.
    whole + u64::from(scaled - whole as f64 >= 0.5)
}

#[cfg(test)]
mod tests {
    //! That order and vectors do not matter.

    use super::*;
    use crate::vectors::vectorized;
    use cairn_random::{halves, philox};
    use proptest::prelude::*;

    fn with_zeros(counter: u64) -> [u32; 4] {
        let [low, high] = halves(counter);
        [low, high, 0, 0]
    }

    proptest! {
        #[test]
        fn vectors_give_the_numbers_of_one_block_after_the_other(key in any::<[u32; 2]>(), counter: u64) {
            let plain = |lane: usize| philox(key, with_zeros(counter.wrapping_add(lane as u64)));
            let vectors = vectorized(|| Stream { key }.blocks(counter));
            prop_assert_eq!(vectors, std::array::from_fn(plain));
        }

        #[test]
        fn thresholds_are_rounded_to_the_nearest(probability in -0.1_f64..1.1) {
            let exact = (probability.clamp(0.0, 1.0) * 4_294_967_296.0).round();
            prop_assert_eq!(threshold(probability) as f64, exact);
        }
    }

    #[test]
    fn numbers_do_not_depend_on_how_a_tensor_is_cut() {
        let stream = Stream::new(7, "w", 1);
        let draw = |first, len| {
            let mut numbers = vec![0; len];
            stream.fill(first, &mut numbers);
            numbers
        };
        let whole = draw(0, 103);
        for cut in [0, 1, 2, 3, 4, 5, 31, 32, 33, 50, 101, 102, 103] {
            assert_eq!([draw(0, cut), draw(cut, 103 - cut)].concat(), whole);
        }
        assert_ne!(Stream::new(8, "w", 1).key, stream.key);
        assert_ne!(Stream::new(7, "v", 1).key, stream.key);
        assert_ne!(Stream::new(7, "w", 2).key, stream.key);
    }

    #[test]
    fn a_share_of_numbers_falls_below_a_threshold() {
        let stream = Stream::new(1, "w", 0);
        let count = 1 << 20;
        for share in [0.0, 0.01, 0.5, 0.9, 1.0] {
            let below = threshold(share);
            let mut numbers = vec![0; count];
            stream.fill(0, &mut numbers);
            let hits = numbers
                .iter()
                .filter(|number| u64::from(**number) < below)
                .count();
            let error = hits as f64 / count as f64 - share;
            let sigma = (share * (1.0 - share) / count as f64).sqrt();
            assert!(error.abs() <= 4.0 * sigma, "{share}: off by {error}");
        }
    }
}
