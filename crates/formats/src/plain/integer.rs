//! Integers of any length.

use crate::pickle::MAX_INT_BYTES;
use serde_json::{Value, json};

/// The most digits of a number that is written.
const MAX_DIGITS: usize = MAX_INT_BYTES;

/// The JSON of an integer in two's complement, lowest byte first.
pub(super) fn json(bytes: &[u8]) -> Value {
    let text = decimal(bytes);
    if let Ok(value) = text.parse::<i64>() {
        return json!(value);
    }
    match text.parse::<u64>() {
        Ok(value) => json!(value),
        Err(_) => json!({"$int": text}),
    }
}

/// Two's complement of a decimal number, lowest byte first; `None` if it is none.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    // Half a byte is enough for a digit, and one more byte keeps the sign free.
    let mut bytes = vec![0; digits.len() / 2 + 2];
    for digit in digits.bytes() {
        let mut carry = u16::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        for byte in &mut bytes {
            let value = u16::from(*byte) * 10 + carry;
            *byte = u8::try_from(value & 0xff).expect("masked");
            carry = value >> 8;
        }
    }
    if digits.len() < text.len() {
        negate(&mut bytes);
    }
    Some(bytes)
}

fn decimal(bytes: &[u8]) -> String {
    let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
    let mut magnitude = bytes.to_vec();
    if negative {
        negate(&mut magnitude);
    }
    let mut digits = Vec::new();
    while magnitude.iter().any(|byte| *byte != 0) {
        digits.push(b'0' + divide_by_ten(&mut magnitude));
    }
    if digits.is_empty() {
        digits.push(b'0');
    }
    if negative {
        digits.push(b'-');
    }
    digits
        .iter()
        .rev()
        .map(|digit| char::from(*digit))
        .collect()
}

fn negate(bytes: &mut [u8]) {
    let mut carry = true;
    for byte in bytes {
        (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
    }
}

/// Divides in place and returns the remainder.
fn divide_by_ten(bytes: &mut [u8]) -> u8 {
    let mut rest = 0_u16;
    for byte in bytes.iter_mut().rev() {
        let value = rest << 8 | u16::from(*byte);
        *byte = u8::try_from(value / 10).expect("the remainder is below ten");
        rest = value % 10;
    }
    u8::try_from(rest).expect("below ten")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decimals_are_those_of_the_machine(value in any::<i128>()) {
            prop_assert_eq!(decimal(&value.to_le_bytes()), value.to_string());
        }
    }

    #[test]
    fn the_ends_of_the_range_and_longer_ones_are_right() {
        for value in [i128::MIN, i128::MAX, -1, 0, 1] {
            assert_eq!(decimal(&value.to_le_bytes()), value.to_string());
        }
        let mut power = [0; 17];
        power[16] = 1;
        assert_eq!(
            json(&power),
            json!({"$int": "340282366920938463463374607431768211456"})
        );
    }
}
