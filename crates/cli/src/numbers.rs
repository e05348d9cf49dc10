//! Measured numbers, as short as they can be read.

/// The digits of a measured number.
const DIGITS: usize = 4;

/// `0.01234`, `-1.5`, `3.1e-7`: four digits, without zeros at the end; small integers in full.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.abs().to_string().replace("inf", sign(value));
    }
    if value.fract() == 0.0 && value.abs() < 1e7 {
        return value.to_string();
    }
    let scientific = format!("{:.*e}", DIGITS - 1, value);
    let rounded: f64 = scientific.parse().unwrap_or(value);
    match rounded.abs() {
        1e-3..1e5 => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

/// The same, or nothing.
pub(crate) fn short_or_blank(value: Option<f64>) -> String {
    value.map(short).unwrap_or_default()
}

/// `12.5%`, and a share that is neither nothing nor all never looks like either.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        0.0 | 100.0 => format!("{percent:.0}%"),
        _ if percent < 0.05 => "<0.1%".to_string(),
        _ if percent >= 99.95 => ">99.9%".to_string(),
        _ => format!("{percent:.1}%"),
    }
}

fn sign(value: f64) -> &'static str {
    if value < 0.0 { "-inf" } else { "inf" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_are_kept_and_zeros_are_not() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-0.012_345, "-0.01235"),
            (12_345.0, "12345"),
            (99_999.9, "1e5"),
            (-12_345_678.0, "-1.235e7"),
            (3.1e-7, "3.1e-7"),
            (1e300, "1e300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_share_of_almost_all_is_not_all() {
        let cases = [
            (0.0, "0%"),
            (1e-9, "<0.1%"),
            (0.125, "12.5%"),
            (0.99999, ">99.9%"),
            (1.0, "100%"),
        ];
        for (share, text) in cases {
            assert_eq!(percent(share), text);
        }
    }
}
