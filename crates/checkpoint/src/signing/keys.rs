//! Keys of Ed25519, and the line of text each is kept as.

use crate::Error;
use crate::checksum::{from_hex, to_hex};
use ed25519_compact::{KeyPair, PublicKey as Point, Seed, Signature};
use std::fmt::{self, Debug, Display};
use std::str::FromStr;

const SECRET: &str = "cairn-ed25519-secret:";
const PUBLIC: &str = "cairn-ed25519-public:";

/// What says that a signature is of a checkpoint, so that it means nothing anywhere else.
const PURPOSE: &[u8] = b"cairn checkpoint signature 1\n";

/// The key that signs. Whoever has it can sign.
#[derive(Clone)]
pub struct SecretKey(KeyPair);

/// The key that tells whether a signature is by its secret key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl SecretKey {
    /// A new key, from the randomness of the system.
    ///
    /// # Errors
    /// If the system has none.
    pub fn generate() -> Result<Self, Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| Error::Key {
            reason: format!("the system has no randomness for a new one: {error}"),
        })?;
        Ok(Self(KeyPair::from_seed(Seed::new(seed))))
    }

    /// The key that others check signatures with.
    pub fn public(&self) -> PublicKey {
        PublicKey(*self.0.pk)
    }

    /// The line of text that is this key, and that only its owner may read.
    pub fn to_text(&self) -> String {
        format!("{SECRET}{}", to_hex(self.0.sk.seed().as_ref()))
    }

    pub(super) fn sign(&self, statement: &[u8]) -> [u8; 64] {
        *self.0.sk.sign([PURPOSE, statement].concat(), None)
    }
}

impl PublicKey {
    /// Whether `signature` is that of the secret key under `statement`.
    pub(super) fn confirms(&self, statement: &[u8], signature: &[u8; 64]) -> bool {
        let signature = Signature::new(*signature);
        let signed = [PURPOSE, statement].concat();
        Point::new(self.0).verify(signed, &signature).is_ok()
    }

    /// The digits of the key.
    pub(super) fn digits(&self) -> String {
        to_hex(&self.0)
    }
}

impl FromStr for SecretKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.trim().strip_prefix(SECRET);
        let seed = digits.and_then(from_hex::<32>).ok_or_else(|| Error::Key {
            reason: format!("a secret key is `{SECRET}` and 64 hexadecimal digits"),
        })?;
        Ok(Self(KeyPair::from_seed(Seed::new(seed))))
    }
}

impl FromStr for PublicKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        if text.starts_with(SECRET) {
            let reason = "this is a secret key, where a public one is needed".into();
            return Err(Error::Key { reason });
        }
        let digits = text.strip_prefix(PUBLIC).and_then(from_hex::<32>);
        digits.map(Self).ok_or_else(|| Error::Key {
            reason: format!("a public key is `{PUBLIC}` and 64 hexadecimal digits"),
        })
    }
}

impl Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC}{}", self.digits())
    }
}

impl Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.digits())
    }
}

impl Debug for SecretKey {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {:?})", self.public())
    }
}

#[cfg(test)]
mod tests {
    //! Keys are read back, say nothing in messages, and confirm what they signed and nothing else.

    use super::*;

    #[test]
    fn keys_are_read_back_and_nonsense_is_not() {
        let key = SecretKey::generate().unwrap();
        let again: SecretKey = format!(" {}\n", key.to_text()).parse().unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(
            key.public().to_string().parse::<PublicKey>().unwrap(),
            key.public()
        );
        for text in [
            "",
            "abc",
            SECRET,
            &key.public().to_string(),
            &key.to_text()[..40],
        ] {
            assert!(text.parse::<SecretKey>().is_err(), "{text}");
        }
        let mistaken = key.to_text().parse::<PublicKey>().unwrap_err();
        assert!(mistaken.to_string().contains("secret"), "{mistaken}");
        assert!(
            !mistaken
                .to_string()
                .contains(&key.to_text()[SECRET.len()..])
        );
    }

    #[test]
    fn no_secret_is_printed_by_accident() {
        let key = SecretKey::generate().unwrap();
        let digits = &key.to_text()[SECRET.len()..];
        assert!(!format!("{key:?}").contains(digits));
    }

    #[test]
    fn a_signature_is_of_one_text_by_one_key() {
        let (key, other) = (
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        );
        let signature = key.sign(b"text");
        assert!(key.public().confirms(b"text", &signature));
        assert!(!key.public().confirms(b"texts", &signature));
        assert!(!other.public().confirms(b"text", &signature));
        for bit in (0..512).step_by(7) {
            let mut changed = signature;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.public().confirms(b"text", &changed), "bit {bit}");
        }
    }

    #[test]
    fn keys_that_confirm_anything_are_refused() {
        // The neutral element, with which a signature of zeros fits every text.
        let mut weak = [0; 32];
        weak[0] = 1;
        let mut signature = [0; 64];
        signature[0] = 1;
        assert!(!PublicKey(weak).confirms(b"text", &signature));
        assert!(!PublicKey([0; 32]).confirms(b"text", &[0; 64]));
    }
}
