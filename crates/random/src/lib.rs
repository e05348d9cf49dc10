//! Random numbers that are a function of a key and a counter: Philox 4×32 with ten rounds.
//!
//! A number depends on its key and its place only, never on what was drawn before, so no order, thread count or restart changes it. The generator is
//! from Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.

const ROUNDS: usize = 10;
const MULTIPLIERS: [u64; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const LOW: u64 = 0xffff_ffff;

/// The four random words of a counter under a key.
#[inline(always)]
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let [words] = lanes(key, counter.map(|word| [u64::from(word)]));
    words
}

/// The words of `N` counters one after another: those that begin with the words of `first`, of `first + 1` and so on, and all end with `high`.
///
/// Called where vectors are allowed, it computes with them.
#[inline(always)]
pub fn blocks<const N: usize>(key: [u32; 2], first: u64, high: [u32; 2]) -> [[u32; 4]; N] {
    let counters: [u64; N] = std::array::from_fn(|lane| first.wrapping_add(lane as u64));
    let [third, fourth] = high.map(|word| [u64::from(word); N]);
    lanes(
        key,
        [
            counters,
            counters.map(|counter| counter >> 32),
            third,
            fourth,
        ],
    )
}

/// The low and the high half of a number.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "these are the halves")]
pub fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

/// The rounds, in loops that become vectors.
///
/// Each word has 64 bits of its own, the upper half of which says nothing: so a round is two products, two shifts and four exclusive ors of vectors,
/// and no word ever moves to another lane.
#[inline(always)]
fn lanes<const N: usize>(mut key: [u32; 2], mut words: [[u64; N]; 4]) -> [[u32; 4]; N] {
    for _ in 0..ROUNDS {
        #[expect(
            clippy::needless_range_loop,
            reason = "a lane runs through all four words"
        )]
        for lane in 0..N {
            let first = (words[0][lane] & LOW) * MULTIPLIERS[0];
            let second = (words[2][lane] & LOW) * MULTIPLIERS[1];
            words[0][lane] = (second >> 32) ^ words[1][lane] ^ u64::from(key[0]);
            words[1][lane] = second;
            words[2][lane] = (first >> 32) ^ words[3][lane] ^ u64::from(key[1]);
            words[3][lane] = first;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    std::array::from_fn(|lane| words.map(|word| halves(word[lane])[0]))
}

#[cfg(test)]
mod tests {
    //! The generator's published answers, and that lanes are counters.

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_words_are_those_of_the_paper() {
        // Known answers of the authors' reference implementation, Random123.
        assert_eq!(
            philox([0; 2], [0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 2], [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    /// The generator as its authors write it.
    fn plain(mut key: [u32; 2], mut x: [u32; 4]) -> [u32; 4] {
        for _ in 0..ROUNDS {
            let left = halves(u64::from(x[0]) * MULTIPLIERS[0]);
            let right = halves(u64::from(x[2]) * MULTIPLIERS[1]);
            x = [
                right[1] ^ x[1] ^ key[0],
                right[0],
                left[1] ^ x[3] ^ key[1],
                left[0],
            ];
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        x
    }

    proptest! {
        #[test]
        fn lanes_agree_with_one_counter_after_the_other(
            key in any::<[u32; 2]>(),
            // Also around where the upper half of the counter begins.
            first in prop_oneof![any::<u64>(), (1_u64 << 32) - 9..(1_u64 << 32) + 2],
            high in any::<[u32; 2]>(),
        ) {
            let together = blocks::<8>(key, first, high);
            for (lane, words) in (0..).zip(together) {
                let [low, above] = halves(first.wrapping_add(lane));
                let counter = [low, above, high[0], high[1]];
                prop_assert_eq!(words, plain(key, counter));
                prop_assert_eq!(words, philox(key, counter));
            }
        }
    }
}
