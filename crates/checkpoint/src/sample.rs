//! Which bytes of a checkpoint are looked at, when not all of them are.

use crate::checksum::crc32c;
use crate::pool::CHUNK_BYTES;

/// The bytes that a sample reads at a time.
const SAMPLE_BYTES: usize = 1 << 20;

/// Which bytes a check reads and compares: stretches of every file, evenly spread, that begin where the seed says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The share of all bytes: 0.0 for none, 1.0 for all.
    pub share: f64,
    /// Samples of one share and several seeds reach all bytes in time.
    pub seed: u64,
}

impl From<f64> for Sample {
    /// A share of the bytes, others each time.
    fn from(share: f64) -> Self {
        use std::hash::{BuildHasher, RandomState};
        let seed = RandomState::new().hash_one(share.to_bits());
        // Short enough to be typed again.
        let seed = seed % 1_000_000;
        Self { share, seed }
    }
}

impl Sample {
    /// The bytes that are read or left out as a whole.
    pub(crate) fn stretch_bytes(&self) -> usize {
        match self.share >= 1.0 {
            true => CHUNK_BYTES,
            false => SAMPLE_BYTES,
        }
    }

    /// Whether stretch `index` of a writer's file is in: when `index * share`, from the file's own beginning on, passes a whole number.
    pub(crate) fn takes(&self, writer: usize, index: usize) -> bool {
        let place = crc32c(format!("{} {writer}", self.seed).as_bytes());
        let begin = f64::from(place) / (f64::from(u32::MAX) + 1.0);
        let at = |index: usize| (begin + index as f64 * self.share).floor();
        self.share >= 1.0 || at(index + 1) > at(index)
    }
}

#[cfg(test)]
mod tests {
    //! A sample has the size it was asked for, is the same for the same seed, and misses nothing for ever.

    use super::*;
    use proptest::prelude::*;

    fn taken(share: f64, seed: u64, writer: usize, stretches: usize) -> Vec<usize> {
        let sample = Sample { share, seed };
        (0..stretches)
            .filter(|index| sample.takes(writer, *index))
            .collect()
    }

    #[test]
    fn none_and_all_are_what_they_say() {
        assert!(taken(0.0, 7, 0, 1000).is_empty());
        assert_eq!(taken(1.0, 7, 3, 1000).len(), 1000);
    }

    #[test]
    fn seeds_reach_every_stretch_of_a_file_in_time() {
        let mut missing: Vec<usize> = (0..100).collect();
        for seed in 0..200 {
            let taken = taken(0.1, seed, 2, 100);
            missing.retain(|index| !taken.contains(index));
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    proptest! {
        #[test]
        fn a_sample_has_its_share_of_every_file(
            share in 0.001..1.0f64,
            seed: u64,
            writer in 0..5000usize,
            stretches in 0..3000usize,
        ) {
            let taken = taken(share, seed, writer, stretches);
            let expected = share * stretches as f64;
            prop_assert!((taken.len() as f64 - expected).abs() <= 1.0 + 1e-6, "{} for {expected}", taken.len());
        }
    }
}
