//! Text as tokens and back.

#[cfg(feature = "tokenizers")]
mod hugging_face;

use crate::Error;
use std::fmt::Debug;

#[cfg(feature = "tokenizers")]
pub use hugging_face::HuggingFace;

/// Turns text into tokens and back.
pub trait Tokenizer: Debug + Send + Sync {
    /// Its file or name, for messages.
    fn name(&self) -> &str;

    /// The number that all tokens are below.
    fn vocabulary(&self) -> u32;

    /// The token that ends a document, if there is one.
    fn eos(&self) -> Option<u32>;

    /// The number of a token that is written like this.
    fn find(&self, token: &str) -> Option<u32>;

    /// The tokens of a text, without any that begin or end it.
    ///
    /// # Errors
    /// If it refuses the text.
    fn encode(&self, text: &str) -> Result<Vec<u32>, Error>;

    /// The text of tokens, as far as they are text.
    ///
    /// # Errors
    /// If it refuses the tokens.
    fn decode(&self, tokens: &[u32]) -> Result<String, Error>;
}

/// The tokenizer that needs no file: every byte of UTF-8 is a token, and 256 ends a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bytes;

impl Bytes {
    /// The token that ends a document.
    pub const EOS: u32 = 256;
}

impl Tokenizer for Bytes {
    fn name(&self) -> &str {
        "bytes"
    }

    fn vocabulary(&self) -> u32 {
        Self::EOS + 1
    }

    fn eos(&self) -> Option<u32> {
        Some(Self::EOS)
    }

    fn find(&self, token: &str) -> Option<u32> {
        match token.as_bytes() {
            [byte] => Some((*byte).into()),
            _ => None,
        }
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, Error> {
        let bytes = tokens.iter().filter_map(|token| u8::try_from(*token).ok());
        let bytes: Vec<u8> = bytes.collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The tokenizer of a name: `bytes`, or the path of a `tokenizer.json` or of the folder of a model with one.
///
/// # Errors
/// If there is no such file, or it is no tokenizer.
pub fn tokenizer(name: &str) -> Result<Box<dyn Tokenizer>, Error> {
    if name == Bytes.name() {
        return Ok(Box::new(Bytes));
    }
    from_file(name)
}

#[cfg(feature = "tokenizers")]
fn from_file(path: &str) -> Result<Box<dyn Tokenizer>, Error> {
    Ok(Box::new(HuggingFace::open(path)?))
}

#[cfg(not(feature = "tokenizers"))]
fn from_file(path: &str) -> Result<Box<dyn Tokenizer>, Error> {
    Err(Error::Tokenizer {
        tokenizer: path.to_owned(),
        reason: "cannot be read: only `bytes` was built in, without the feature `tokenizers`"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_text() {
        let text = "Füße \r\n 日本 👍 e\u{301} \0";
        let tokens = Bytes.encode(text).unwrap();
        assert_eq!(tokens.len(), text.len());
        assert_eq!(Bytes.decode(&tokens).unwrap(), text);
        assert_eq!(Bytes.decode(&[104, 105, Bytes::EOS, 300]).unwrap(), "hi");
        assert_eq!(Bytes.decode(&[0xff]).unwrap(), "\u{fffd}");
    }

    #[test]
    fn a_tokenizer_that_does_not_exist_is_named() {
        let error = tokenizer("nowhere/tokenizer.json").unwrap_err();
        assert!(
            error.to_string().contains("nowhere/tokenizer.json"),
            "{error}"
        );
    }
}
