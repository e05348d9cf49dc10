//! What can be wrong with a foreign file.

/// Why a file or folder could not be understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The safetensors header breaks the format's rules.
    #[error("`{file}` is not a valid safetensors file: {reason}")]
    Header {
        /// The file, as the caller named it.
        file: String,
        /// Which rule is broken, and where.
        reason: String,
    },
    /// `model.safetensors.index.json` is damaged or disagrees with its files.
    #[error("`{file}` does not describe the folder: {reason}")]
    Index {
        /// The index file.
        file: String,
        /// What does not fit.
        reason: String,
    },
    /// A pickle breaks its rules, or uses what is not read.
    #[error("`{file}` cannot be read as a pickle: {reason} (byte {offset})")]
    Pickle {
        /// The file, as the caller named it.
        file: String,
        /// Where in the pickle.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A pickle names something that plain data has no need of.
    #[error("`{file}` {deed} `{global}` at byte {offset} of its pickle, which is not allowed")]
    Global {
        /// The file, as the caller named it.
        file: String,
        /// Where in the pickle.
        offset: u64,
        /// What it does with the name.
        deed: &'static str,
        /// The name: a module and what it defines.
        global: String,
    },
    /// Nothing in the folder looks like a model.
    #[error("`{place}` holds no safetensors model")]
    NotAModel {
        /// The folder or file that was looked at.
        place: String,
    },
    /// The bytes could not be read.
    #[error("cannot read the model")]
    Store(#[from] cairn_store::Error),
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Header { .. } => {
                Some("the file is damaged or incomplete: fetch or write it again".into())
            }
            Error::Pickle { .. } => {
                Some("the file is damaged, or was made by something unusual: write it again".into())
            }
            Error::Global { .. } => Some(
                "nothing of it was run; if you trust the file, load it with the program that wrote it and save tensors and plain values only".into(),
            ),
            Error::Index { .. } => Some(
                "delete the index to use the files as they are, or fetch the folder again".into(),
            ),
            Error::NotAModel { .. } => Some(
                "expected `model.safetensors`, `model.safetensors.index.json`, or other `.safetensors` files".into(),
            ),
            Error::Store(error) => error.hint(),
        }
    }
}
