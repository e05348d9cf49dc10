//! Keys as services take them: without control characters.

/// Writes control characters as `%0A`, and `%` as `%25` where it would be read as one of them.
pub(super) fn encode(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for (at, character) in key.char_indices() {
        let is_control = character.is_ascii_control();
        match is_control || (character == '%' && escaped(&key[at..]).is_some()) {
            true => encoded.push_str(&format!("%{:02X}", u32::from(character))),
            false => encoded.push(character),
        }
    }
    encoded
}

/// The character that `text` begins with, written as [`encode`] does.
fn escaped(text: &str) -> Option<char> {
    let digits = text.strip_prefix('%')?.get(..2)?;
    let digits = digits
        .bytes()
        .all(|digit| digit.is_ascii_hexdigit())
        .then_some(digits)?;
    let code = u8::from_str_radix(digits, 16).ok()?;
    (code == b'%' || code.is_ascii_control()).then_some(char::from(code))
}

/// The key that [`encode`] wrote so. What others wrote is left as it is where it cannot be one.
pub(super) fn decode(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('%') {
        key.push_str(&rest[..at]);
        rest = &rest[at..];
        key.push(escaped(rest).unwrap_or('%'));
        rest = &rest[if escaped(rest).is_some() { 3 } else { 1 }..];
    }
    key + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_others_are_left_as_they_are() {
        for name in ["a%", "100%é", "%zz", "%2e", "%+1", "%%", "50%.bin"] {
            assert_eq!(decode(name), name);
            assert_eq!(encode(name), name);
        }
        assert_eq!(encode("a\nb%25"), "a%0Ab%2525");
    }

    proptest! {
        #[test]
        fn every_key_comes_back(key in "([%025aAd\n\u{7f}]|\\PC){0,12}") {
            let encoded = encode(&key);
            prop_assert!(!encoded.chars().any(|character| character.is_ascii_control()));
            prop_assert_eq!(decode(&encoded), key);
        }
    }
}
