//! What can go wrong with models.

use std::fmt;

/// What can go wrong with models.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A group of ranks failed.
    #[error(transparent)]
    Collective(#[from] cairn_collectives::Error),
    /// A config does not describe a model that can be built.
    #[error("the model's config cannot be used:{}", lines(problems))]
    Config {
        /// All that is wrong with it.
        problems: Vec<Problem>,
    },
    /// What goes through a model does not fit it.
    #[error("{what}: {actual} elements instead of {expected}")]
    Length {
        /// What it is.
        what: &'static str,
        /// How many elements there should be.
        expected: usize,
        /// How many there are.
        actual: usize,
    },
    /// A token is not in the vocabulary.
    #[error("token {token} is not in the vocabulary of {vocab_size}")]
    Token {
        /// The token.
        token: i64,
        /// How many there are.
        vocab_size: usize,
    },
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Config { problems } => {
                let mut hints: Vec<&str> = problems
                    .iter()
                    .filter_map(|it| it.hint.as_deref())
                    .collect();
                hints.dedup();
                (!hints.is_empty()).then(|| hints.join("; "))
            }
            Self::Token { .. } => Some("tokenise the data with the tokenizer of this model".into()),
            _ => None,
        }
    }
}

/// One thing that is wrong with a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub what: String,
    /// What could be done about it.
    pub hint: Option<String>,
}

impl Problem {
    /// Something wrong, with nothing to say about what to do.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
        }
    }

    /// The same, with what to do.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines = problems.iter().map(|problem| format!("\n  {problem}"));
    lines.collect()
}
