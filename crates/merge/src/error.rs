//! Why a merge does not succeed, and what to do next.

use crate::config::Problem;
use cairn_checkpoint::Error as CheckpointError;

/// Why a merge did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The config has mistakes.
    #[error("the config has {}", listed(problems))]
    Config {
        /// All of them, in order of lines.
        problems: Vec<Problem>,
    },
    /// Models, or parts of them, are not as the config needs them.
    #[error("these models cannot be merged:{}", lines(problems))]
    Models {
        /// All that is wrong.
        problems: Vec<String>,
    },
    /// A checkpoint or model cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] cairn_store::Error),
    /// A tensor has no merge.
    #[error("tensor `{name}` cannot be merged: {reason}")]
    Tensor {
        /// The tensor.
        name: String,
        /// Why.
        reason: String,
    },
    /// A side file of a model is not what it should be.
    #[error("`{file}` of `{model}` {reason}")]
    Asset {
        /// The model.
        model: String,
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Checkpoint(error) => error.hint(),
            Error::Store(error) => error.hint(),
            Error::Models { problems } if problems.iter().any(|text| text.contains("tokens")) => {
                Some("give `tokenizer_source: base`, `union` or a model".into())
            }
            Error::Models { problems }
                if problems.iter().any(|text| text.contains("not exist")) =>
            {
                Some(
                    "models are folders, files or runs; one from a hub has to be downloaded first"
                        .into(),
                )
            }
            _ => None,
        }
    }
}

fn listed(problems: &[Problem]) -> String {
    match problems {
        [one] => format!("a mistake: {one}"),
        many => format!("{} mistakes:{}", many.len(), lines(many)),
    }
}

/// Each on a line of its own, unless there is only one.
fn lines<T: ToString>(problems: &[T]) -> String {
    match problems {
        [one] => format!(" {}", one.to_string()),
        many => many
            .iter()
            .map(|problem| format!("\n  {}", problem.to_string()))
            .collect(),
    }
}
