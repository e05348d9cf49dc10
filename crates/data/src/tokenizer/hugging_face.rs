//! Tokenizers of Hugging Face: `tokenizer.json`.

use crate::file::{failed, locate};
use crate::{Error, Tokenizer};
use serde_json::Value;

/// What tokens that end a document are called, where a model does not say.
const KNOWN_EOS: [&str; 5] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
];

/// A tokenizer read from a `tokenizer.json`.
///
/// It cuts nothing off and adds nothing, whatever the file says about that.
#[derive(Debug)]
pub struct HuggingFace {
    name: String,
    tokenizer: tokenizers::Tokenizer,
    vocabulary: u32,
    eos: Option<u32>,
}

impl HuggingFace {
    /// Opens a `tokenizer.json`, or the one in the folder of a model. The token that ends a document is what the `tokenizer_config.json` beside it says.
    ///
    /// # Errors
    /// If there is no such file, or it is no tokenizer.
    pub fn open(path: &str) -> Result<Self, Error> {
        let path = path.trim_end_matches('/');
        let (mut store, mut key) = locate(path)?;
        // These name a folder, and no file can be called that.
        let is_folder = matches!(key.as_str(), "." | "..");
        if is_folder
            || (store.head(&key).map_err(failed(path))?.is_none() && !key.ends_with(".json"))
        {
            (store, key) = locate(&format!("{path}/tokenizer.json"))?;
        }
        let bytes = store.get(&key).map_err(failed(path))?;
        let beside = "tokenizer_config.json";
        let config = match store.head(beside).map_err(failed(path))? {
            Some(_) => Some(store.get(beside).map_err(failed(path))?),
            None => None,
        };
        Self::from_bytes(path, &bytes, config.as_deref())
    }

    /// Reads a `tokenizer.json`, and perhaps the `tokenizer_config.json` that belongs to it.
    ///
    /// # Errors
    /// If the bytes are no tokenizer.
    pub fn from_bytes(name: &str, json: &[u8], config: Option<&[u8]>) -> Result<Self, Error> {
        let refuse = |error: tokenizers::Error| refused(name, format!("cannot be read: {error}"));
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(refuse)?;
        tokenizer
            .with_padding(None)
            .with_truncation(None)
            .map_err(refuse)?;
        let largest = tokenizer.get_vocab(true).into_values().max();
        let vocabulary = largest.map_or(Some(0), |token| token.checked_add(1));
        let vocabulary = vocabulary.ok_or_else(|| refused(name, "has too large a token".into()))?;
        let named = config.and_then(eos_name);
        let eos = match named {
            Some(token) => tokenizer.token_to_id(&token),
            None => KNOWN_EOS
                .iter()
                .find_map(|token| tokenizer.token_to_id(token)),
        };
        let name = name.to_owned();
        Ok(Self {
            name,
            tokenizer,
            vocabulary,
            eos,
        })
    }
}

/// The token that ends a document, as a `tokenizer_config.json` says it: as text, or as an object with the text.
fn eos_name(config: &[u8]) -> Option<String> {
    let config: Value = serde_json::from_slice(config).ok()?;
    let token = config.get("eos_token")?;
    let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
    Some(text.to_owned())
}

fn refused(tokenizer: &str, reason: String) -> Error {
    let tokenizer = tokenizer.to_owned();
    Error::Tokenizer { tokenizer, reason }
}

impl Tokenizer for HuggingFace {
    fn name(&self) -> &str {
        &self.name
    }

    fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    fn eos(&self) -> Option<u32> {
        self.eos
    }

    fn find(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let encoded = self.tokenizer.encode_fast(text, false);
        let encoded =
            encoded.map_err(|error| refused(&self.name, format!("refuses a text: {error}")))?;
        Ok(encoded.get_ids().to_vec())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, Error> {
        let decoded = self.tokenizer.decode(tokens, true);
        decoded.map_err(|error| refused(&self.name, format!("refuses tokens: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A byte-level BPE of 288 tokens, trained and written by the `tokenizers` package for Python, which cuts texts after three tokens.
    const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tokenizer.json");

    const FOREIGN: &[u32] = &[
        38, 128, 121, 128, 254, 69, 221, 163, 246, 99, 163, 251, 106, 221, 69, 137, 224,
    ];

    #[test]
    fn tokens_are_those_of_the_python_package() {
        let tokenizer = HuggingFace::open(FIXTURE).unwrap();
        assert_eq!((tokenizer.vocabulary(), tokenizer.eos()), (288, Some(0)));
        let cases: [(&str, &[u32]); 4] = [
            (
                "the stones  of the\r\nnorth",
                &[259, 275, 221, 221, 283, 261, 202, 199, 282, 285],
            ),
            ("Füße 日本 e\u{301}", FOREIGN),
            (" on and on ", &[263, 274, 263, 221]),
            ("", &[]),
        ];
        for (text, tokens) in cases {
            assert_eq!(tokenizer.encode(text).unwrap(), tokens);
            assert_eq!(tokenizer.decode(tokens).unwrap(), text);
        }
        assert_eq!(tokenizer.encode("<|endoftext|>a").unwrap(), [0, 65]);
        assert_eq!(tokenizer.find("Ġthe"), Some(261));
    }

    #[test]
    fn the_folder_of_a_model_is_as_good() {
        let folder = FIXTURE.strip_suffix("/tokenizer.json").unwrap();
        assert_eq!(HuggingFace::open(folder).unwrap().vocabulary(), 288);
    }

    #[test]
    fn a_config_says_what_ends_a_document() {
        let json = cairn_store::open(FIXTURE.strip_suffix("/tokenizer.json").unwrap()).unwrap();
        let json = json.get("tokenizer.json").unwrap();
        let eos = |config: &str| {
            HuggingFace::from_bytes("t", &json, Some(config.as_bytes()))
                .unwrap()
                .eos()
        };
        assert_eq!(eos(r#"{"eos_token": "!"}"#), Some(1));
        assert_eq!(eos(r#"{"eos_token": {"content": "Ġthe"}}"#), Some(261));
        assert_eq!(eos(r#"{"eos_token": "no such token"}"#), None);
        assert_eq!(eos(r#"{"eos_token": null}"#), Some(0));
    }

    #[test]
    fn what_is_no_tokenizer_is_named() {
        let error = HuggingFace::from_bytes("t.json", b"{}", None)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("tokenizer `t.json` cannot be read: "),
            "{error}"
        );
    }
}
