//! JSON documents that notice damage: the last member is the SHA-256 of everything before it.
//!
//! ```text
//! {"cairn":1, … ,"sha256":"<64 hexadecimal digits>"}⏎
//! └── hashed ───┘└──── 76 + 2 bytes, fixed ────────┘
//! ```
//!
//! The document stays ordinary JSON, so any tool reads it, and one flipped bit anywhere is found.

use crate::checksum::sha256_hex;
use serde_json::{Map, Value};

const OPEN: &str = ",\"sha256\":\"";
const CLOSE: &str = "\"}\n";
const DIGEST_LEN: usize = 64;
const TAIL_LEN: usize = OPEN.len() + DIGEST_LEN + CLOSE.len();

/// A document whose seal was checked.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// The members, without the seal.
    pub(crate) members: Map<String, Value>,
    /// The seal's 64 digits.
    pub(crate) digest: String,
}

/// Writes `members` as one line of JSON and seals it. Returns the text and the digest.
pub(crate) fn seal(members: &Map<String, Value>) -> (String, String) {
    let mut text = serde_json::to_string(members).expect("a map of JSON values is JSON");
    text.pop();
    let digest = sha256_hex(text.as_bytes());
    text.push_str(OPEN);
    text.push_str(&digest);
    text.push_str(CLOSE);
    (text, digest)
}

/// The digest that a sealed line ends in, without a look at whether it is right.
pub(crate) fn digest_of(bytes: &[u8]) -> Option<&str> {
    let tail = bytes.strip_suffix(CLOSE.as_bytes())?;
    let start = tail.len().checked_sub(DIGEST_LEN)?;
    std::str::from_utf8(&tail[start..]).ok()
}

/// Checks a sealed line. Returns what was hashed, and the digest.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn check(bytes: &[u8]) -> Result<(&[u8], &str), String> {
    let split = bytes
        .len()
        .checked_sub(TAIL_LEN)
        .ok_or_else(|| format!("it has only {} bytes", bytes.len()))?;
    let (body, tail) = bytes.split_at(split);
    let digest = tail
        .strip_prefix(OPEN.as_bytes())
        .and_then(|tail| tail.strip_suffix(CLOSE.as_bytes()))
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .ok_or("it does not end in a seal, so it is damaged or cut short")?;
    let actual = sha256_hex(body);
    if actual != digest {
        return Err(format!(
            "its seal says {}… but its bytes give {}…",
            &digest.get(..12).unwrap_or_default(),
            &actual[..12]
        ));
    }
    Ok((body, digest))
}

/// Checks and opens a sealed line.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn unseal(bytes: &[u8]) -> Result<Sealed, String> {
    let (body, digest) = check(bytes)?;
    let mut json = body.to_vec();
    json.push(b'}');
    let members = serde_json::from_slice(&json).map_err(|e| format!("it is not JSON: {e}"))?;
    Ok(Sealed {
        members,
        digest: digest.to_string(),
    })
}

#[cfg(test)]
mod tests {
    //! Round trip, valid JSON, and every single bit flip found.

    use super::*;
    use serde_json::json;

    fn members() -> Map<String, Value> {
        json!({"cairn": 1, "name": "größe"})
            .as_object()
            .unwrap()
            .clone()
    }

    #[test]
    fn a_sealed_document_is_json_and_opens_again() {
        let (text, digest) = seal(&members());
        let plain: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(plain["sha256"], digest.as_str());
        let opened = unseal(text.as_bytes()).unwrap();
        assert_eq!(opened.members, members());
        assert_eq!(opened.digest, digest);
    }

    #[test]
    fn every_bit_flip_and_every_truncation_is_found() {
        let (text, _) = seal(&members());
        let bytes = text.as_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(unseal(&bytes[..len]).is_err(), "length {len}");
        }
    }
}
