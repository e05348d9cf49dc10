//! Why a shipped recipe or a template gives no program.

use crate::Error;

/// What is wrong with a template, or with what it is filled with.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// No recipe with this name ships with Cairn.
    #[error("there is no recipe `{name}`")]
    NoSuchRecipe {
        /// The name asked for.
        name: String,
        /// One that looks like it.
        near: Option<String>,
    },
    /// A template asks for something that is not known.
    #[error("the recipe needs `{name}`, and the model's `config.json` does not say it")]
    MissingSetting {
        /// What it asks for.
        name: String,
    },
    /// A setting is not what it should be.
    #[error("`{name}` cannot be `{value}`: expected {expected}")]
    BadSetting {
        /// Its name.
        name: String,
        /// What it is.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A line of a template cannot be read.
    #[error("`{line}` is no line of a recipe: {reason}")]
    Line {
        /// The line.
        line: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// What the template comes to is no program.
    #[error(transparent)]
    Program(#[from] Error),
}

impl LibraryError {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            LibraryError::NoSuchRecipe {
                near: Some(near), ..
            } => Some(format!(
                "did you mean `{near}`? `cairn recipe list` shows all of them"
            )),
            LibraryError::NoSuchRecipe { .. } => {
                Some("`cairn recipe list` shows all of them".into())
            }
            LibraryError::MissingSetting { name } => Some(format!(
                "say it with `--set {name}=…`, or put the `config.json` beside the model"
            )),
            LibraryError::Program(error) => error.hint(),
            _ => None,
        }
    }
}
