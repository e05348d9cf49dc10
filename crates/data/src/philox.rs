//! Philox4x32-10: random numbers that are a function of a key and a counter.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The four random words of a counter under a key.
pub(crate) fn philox(key: u64, counter: [u32; 4]) -> [u32; 4] {
    let mut key = halves(key);
    let mut words = counter;
    for _ in 0..ROUNDS {
        let [low_0, high_0] = product(words[0], MULTIPLIERS[0]);
        let [low_2, high_2] = product(words[2], MULTIPLIERS[1]);
        words = [
            high_2 ^ words[1] ^ key[0],
            low_2,
            high_0 ^ words[3] ^ key[1],
            low_0,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    words
}

/// The low and the high half of a product.
fn product(left: u32, right: u32) -> [u32; 2] {
    halves(u64::from(left) * u64::from(right))
}

/// The low and the high half of a number.
pub(crate) fn halves(number: u64) -> [u32; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "these are the halves")]
    [number as u32, (number >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::philox;

    #[test]
    fn the_words_are_those_of_the_paper() {
        // Known answers of the authors' reference implementation, Random123.
        assert_eq!(
            philox(0, [0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox(u64::MAX, [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                0x299f_31d0_a409_3822,
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
