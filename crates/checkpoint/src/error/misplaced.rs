//! Why a model cannot be written, or read, where it was to be.

/// Why a model cannot be written, or read, where it was to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// What is to be written lies in what is read.
    #[error("`{url}` is a part of what is read here, `{input}`, which stays as it is")]
    InSource {
        /// Where something was to be written.
        url: String,
        /// What is being read.
        input: String,
    },
    /// A side file of a model lies outside the model's folder.
    #[error("`{key}` is a link that leads out of the model's folder, to `{place}`")]
    OutsideFolder {
        /// The file, by its name in the folder.
        key: String,
        /// Where it leads.
        place: String,
    },
    /// A model was to be written into a run.
    #[error("`{url}` is a run, or a step of one, and no place for a model")]
    InRun {
        /// The folder.
        url: String,
    },
}

impl Misplaced {
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::InSource { .. } => "choose another place for the result",
            Self::OutsideFolder { .. } => {
                "if you trust whoever made the link, copy the file into the folder in its place; if not, delete it"
            }
            Self::InRun { .. } => {
                "choose another folder; `cairn convert --to cairn` and `cairn reshard` add a step to a run"
            }
        }
    }
}
