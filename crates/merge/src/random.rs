//! Random numbers by their place: the same element gets the same number, whoever asks and in whatever order.
//!
//! The generator is Philox 4×32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

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
            head.copy_from_slice(&self.blocks(counter)[skipped..][..head.len()]);
        }
        let counter = counter + u64::from(skipped > 0);
        let (whole, tail) = rest.as_chunks_mut::<NUMBERS>();
        let last = counter + (whole.len() * LANES) as u64;
        for (index, numbers) in whole.iter_mut().enumerate() {
            *numbers = self.blocks(counter + (index * LANES) as u64);
        }
        if !tail.is_empty() {
            tail.copy_from_slice(&self.blocks(last)[..tail.len()]);
        }
    }

    /// The numbers of some blocks from `counter` on.
    ///
    /// Each word has 64 bits of its own, the upper half of which says nothing: so a round is two products, two shifts and four
    /// exclusive ors of vectors, and no word ever moves to another lane.
    #[inline(always)]
    fn blocks(self, counter: u64) -> [u32; NUMBERS] {
        const LOW: u64 = 0xffff_ffff;
        let counters: [u64; LANES] = std::array::from_fn(|lane| counter.wrapping_add(lane as u64));
        let mut words = [
            counters,
            counters.map(|counter| counter >> 32),
            [0; LANES],
            [0; LANES],
        ];
        let mut key = self.key;
        for _ in 0..10 {
            #[expect(
                clippy::needless_range_loop,
                reason = "a lane runs through all four words"
            )]
            for lane in 0..LANES {
                let first = (words[0][lane] & LOW) * 0xd251_1f53;
                let second = (words[2][lane] & LOW) * 0xcd9e_8d57;
                words[0][lane] = (second >> 32) ^ words[1][lane] ^ u64::from(key[0]);
                words[1][lane] = second;
                words[2][lane] = (first >> 32) ^ words[3][lane] ^ u64::from(key[1]);
                words[3][lane] = first;
            }
            key[0] = key[0].wrapping_add(0x9e37_79b9);
            key[1] = key[1].wrapping_add(0xbb67_ae85);
        }
        let mut numbers = [0; NUMBERS];
        for (lane, numbers) in numbers.as_chunks_mut::<WORDS>().0.iter_mut().enumerate() {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the lower half is the number"
            )]
            let block = words.map(|word| word[lane] as u32);
            *numbers = block;
        }
        numbers
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
    //! The generator's published answers, and that order does not matter.

    use super::*;
    use crate::vectors::vectorized;
    use proptest::prelude::*;

    #[test]
    fn the_published_test_vectors_come_out() {
        // From the kat_vectors of Random123: philox4x32 10.
        let zero = Stream { key: [0, 0] };
        let expected = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
        assert_eq!(zero.blocks(0)[..4], expected);
    }

    /// The generator as its authors write it, one block after the other.
    fn block(key: [u32; 2], counter: u64) -> [u32; 4] {
        let [first, second] = [0xd251_1f53_u64, 0xcd9e_8d57];
        let low = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap();
        let high = |word: u64| low(word >> 32);
        let mut x = [low(counter), high(counter), 0, 0];
        let mut key = key;
        for _ in 0..10 {
            let (left, right) = (u64::from(x[0]) * first, u64::from(x[2]) * second);
            x = [
                high(right) ^ x[1] ^ key[0],
                low(right),
                high(left) ^ x[3] ^ key[1],
                low(left),
            ];
            key = [
                key[0].wrapping_add(0x9e37_79b9),
                key[1].wrapping_add(0xbb67_ae85),
            ];
        }
        x
    }

    proptest! {
        #[test]
        fn lanes_agree_with_one_block_after_the_other(
            key in any::<[u32; 2]>(),
            // Also around where the upper half of the counter begins.
            counter in prop_oneof![any::<u64>(), (1_u64 << 32) - 9..(1_u64 << 32) + 2],
        ) {
            let expected: Vec<u32> =
                (0..LANES as u64).flat_map(|lane| block(key, counter.wrapping_add(lane))).collect();
            prop_assert_eq!(Stream { key }.blocks(counter).to_vec(), expected.clone());
            let vectors = vectorized(|| Stream { key }.blocks(counter));
            prop_assert_eq!(vectors.to_vec(), expected);
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
