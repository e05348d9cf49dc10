//! The exponential function of `f32` without branches, so that loops over it become vectors.

/// Added to a small number and taken away again, it leaves the nearest integer; the integer is in the lowest bits of the sum.
const ROUND: f32 = 12_582_912.0;
/// The part of ln 2 whose product with every exponent is exact, and the rest.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// The logarithm of the smallest normal number. Below, the result is zero: numbers that are not normal take a hundred times as long.
const LEAST: f32 = -87.336_54;
/// Above, the result is infinity.
const MOST: f32 = 89.0;
/// (e^r - 1 - r) / r² for |r| ≤ ln 2 / 2, from the highest power to the lowest.
const POLYNOMIAL: [f32; 6] = [
    1.987_569_1e-4,
    1.398_2e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    0.5,
];

/// e to the power of `x`, within two units in the last place; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Comparisons that are false for NaN let it pass.
    let vanishes = x < LEAST;
    let x = if vanishes { LEAST } else { x };
    let x = if x > MOST { MOST } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let exponent = rounded - ROUND;
    let r = (x - exponent * LN_2[0]) - exponent * LN_2[1];
    let mut series = POLYNOMIAL[0];
    for coefficient in &POLYNOMIAL[1..] {
        series = series * r + coefficient;
    }
    let power = (series * r * r + r) + 1.0;
    // Two factors, because 2^128 has no bits of its own.
    let exponent = rounded
        .to_bits()
        .wrapping_sub(ROUND.to_bits())
        .cast_signed();
    let half = exponent >> 1;
    let result = power * power_of_two(half) * power_of_two(exponent - half);
    if vanishes { 0.0 } else { result }
}

#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(exponent.wrapping_add(127).cast_unsigned() << 23)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Real;

    fn ulps(x: f32) -> f64 {
        let exact = f64::from(x).exp();
        let got = exp(x);
        let near = f32::from_f64(exact);
        let ulp = f64::from(near.next_up()) - f64::from(near);
        (f64::from(got) - exact).abs() / ulp
    }

    #[test]
    fn errs_by_less_than_two_units_in_the_last_place() {
        let mut worst = (0.0, 0.0);
        for bits in (0..u32::MAX).step_by(997) {
            let x = f32::from_bits(bits);
            if (LEAST..88.72).contains(&x) && ulps(x) > worst.0 {
                worst = (ulps(x), x);
            }
        }
        assert!(worst.0 < 2.0, "{worst:?}");
    }

    #[test]
    fn the_ends_of_the_range_are_zero_and_infinity() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::MIN), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(f32::MAX), f32::INFINITY);
        assert_eq!(exp(88.8), f32::INFINITY);
        assert!(exp(88.72).is_finite());
        assert!(exp(LEAST) >= f32::MIN_POSITIVE);
        assert_eq!(exp(LEAST.next_down()), 0.0);
        assert!(exp(f32::NAN).is_nan());
    }
}
