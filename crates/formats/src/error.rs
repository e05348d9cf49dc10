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
    /// The file is sound, but of a kind that is not read.
    #[error("`{file}` cannot be read: {reason}")]
    Unsupported {
        /// The file, as the caller named it.
        file: String,
        /// What is in the way.
        reason: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The bytes contradict what the file or folder says about itself.
    #[error("`{file}` is damaged: {reason}")]
    Damaged {
        /// The file, as the caller named it.
        file: String,
        /// What does not fit.
        reason: String,
    },
    /// A folder with data, but without what is written last.
    #[error("`{place}` is a save that never finished: {reason}")]
    Unfinished {
        /// The folder.
        place: String,
        /// What is missing.
        reason: String,
    },
    /// Nothing in the folder looks like a model.
    #[error("`{place}` holds no model or checkpoint that is known")]
    NotAModel {
        /// The folder or file that was looked at.
        place: String,
    },
    /// The bytes could not be read.
    #[error("cannot read the model")]
    Store(#[from] cairn_store::Error),
}

impl Error {
    pub(crate) fn damaged(file: &str, reason: impl Into<String>) -> Self {
        Error::Damaged {
            file: file.to_string(),
            reason: reason.into(),
        }
    }

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
            Error::Unsupported { hint, .. } => Some((*hint).into()),
            Error::Damaged { .. } => {
                Some("fetch or write it again, or use another copy".into())
            }
            Error::Unfinished { .. } => {
                Some("use an earlier checkpoint: the data of this one is incomplete".into())
            }
            Error::Index { .. } => Some(
                "delete the index to use the files as they are, or fetch the folder again".into(),
            ),
            Error::NotAModel { .. } => Some(
                "looked for `model.safetensors.index.json`, `model.safetensors`, other `.safetensors` files, `pytorch_model.bin`, `.metadata` and `.distcp` files of torch, `latest_checkpointed_iteration.txt` of Megatron, `latest` and `_model_states.pt` files of DeepSpeed, and `_METADATA` of Orbax; single files are `.safetensors`, `.pt`, `.pth`, `.bin` or `.ckpt`".into(),
            ),
            Error::Store(error) => error.hint(),
        }
    }
}
