//! Random numbers by their place: the same element gets the same number, whoever asks and in whatever order.
//!
//! The generator is Philox 4×32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

use sha2::{Digest, Sha256};

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

    /// Gives `take` the place of every element from `first` on, with a number below 2³² for it.
    pub(crate) fn each(self, first: usize, len: usize, mut take: impl FnMut(usize, u32)) {
        let end = first + len;
        let mut at = first;
        while at < end {
            let four = self.block(at as u64 / 4);
            let from = at % 4;
            let to = (from + end - at).min(4);
            for number in &four[from..to] {
                take(at - first, *number);
                at += 1;
            }
        }
    }

    /// The four numbers of block `counter`.
    #[inline]
    fn block(self, counter: u64) -> [u32; 4] {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
        let halves = |word: u64| [(word >> 32) as u32, word as u32];
        let [high, low] = halves(counter);
        let mut x = [low, high, 0, 0];
        let mut key = self.key;
        for _ in 0..10 {
            let [high0, low0] = halves(u64::from(x[0]) * 0xd251_1f53);
            let [high1, low1] = halves(u64::from(x[2]) * 0xcd9e_8d57);
            x = [high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0];
            key[0] = key[0].wrapping_add(0x9e37_79b9);
            key[1] = key[1].wrapping_add(0xbb67_ae85);
        }
        x
    }
}

/// The number below which a random number falls with probability `probability`.
pub(crate) fn threshold(probability: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range of 33 bits"
    )]
    let threshold = (probability.clamp(0.0, 1.0) * 4_294_967_296.0).round() as u64;
    threshold
}

#[cfg(test)]
mod tests {
    //! The generator's published answers, and that order does not matter.

    use super::*;

    #[test]
    fn the_published_test_vectors_come_out() {
        // From the kat_vectors of Random123: philox4x32 10.
        let zero = Stream { key: [0, 0] };
        let expected = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
        assert_eq!(zero.block(0), expected);
    }

    #[test]
    fn numbers_do_not_depend_on_how_a_tensor_is_cut() {
        let stream = Stream::new(7, "w", 1);
        let draw = |first, len| {
            let mut numbers = Vec::new();
            stream.each(first, len, |_, number| numbers.push(number));
            numbers
        };
        let whole = draw(0, 103);
        for cut in [1, 2, 3, 4, 5, 50, 102] {
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
            let mut hits = 0_u32;
            stream.each(0, count, |_, number| {
                hits += u32::from(u64::from(number) < below)
            });
            let error = f64::from(hits) / count as f64 - share;
            let sigma = (share * (1.0 - share) / count as f64).sqrt();
            assert!(error.abs() <= 4.0 * sigma, "{share}: off by {error}");
        }
    }
}
