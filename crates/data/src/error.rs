//! What can go wrong with data.

/// What can go wrong with data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("cannot use the file `{file}`")]
    File {
        /// The file, as the caller named it.
        file: String,
        /// What the store says.
        source: cairn_store::Error,
    },
    /// A file is of another kind.
    #[error("`{file}` is no file of tokens: {reason}")]
    Foreign {
        /// The file, as the caller named it.
        file: String,
        /// What shows it.
        reason: String,
    },
    /// A file contradicts itself.
    #[error("`{file}` is damaged: {reason}")]
    Damaged {
        /// The file, as the caller named it.
        file: String,
        /// What does not fit.
        reason: String,
    },
    /// One document of a file is damaged.
    #[error("document {document} of `{file}` is damaged: {reason}")]
    Document {
        /// The file, as the caller named it.
        file: String,
        /// The number of the document, from 0.
        document: u64,
        /// What does not fit.
        reason: String,
    },
    /// A line of a text file cannot be used.
    #[error("line {line} of `{file}` {reason}")]
    Line {
        /// The file, as the caller named it.
        file: String,
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A token does not fit the file it is written to.
    #[error("token {token} does not fit `{file}`: {reason}")]
    Token {
        /// The file being written.
        file: String,
        /// The token.
        token: u32,
        /// The limit it breaks.
        reason: String,
    },
    /// A source has nothing to train on.
    #[error("source `{name}` has no samples")]
    Empty {
        /// The name of the source.
        name: String,
    },
    /// The weight of a source is no positive number.
    #[error("source `{name}` has the weight {weight}, which is not positive")]
    Weight {
        /// The name of the source.
        name: String,
        /// Its weight.
        weight: f64,
    },
    /// A number of things is outside of its limits.
    #[error("{what} must be {least} to {most}, not {value}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// The number given.
        value: u64,
        /// The least allowed.
        least: u64,
        /// The most allowed.
        most: u64,
    },
    /// A tokenizer cannot be read, or refuses a text.
    #[error("tokenizer `{tokenizer}` {reason}")]
    Tokenizer {
        /// Its file or name.
        tokenizer: String,
        /// What it says.
        reason: String,
    },
}

impl Error {
    /// What the reader can do next, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::File { source, .. } => return source.hint(),
            Self::Foreign { .. } => {
                "`cairn tokenize` makes files of tokens; Megatron's are read by the path before `.bin` and `.idx`".into()
            }
            Self::Damaged { .. } | Self::Document { .. } => {
                "use another copy of the file, or tokenize the text again".into()
            }
            Self::Line { .. } => "repair or remove the line".into(),
            Self::Token { .. } => "give the tokenizer that the file is meant for".into(),
            Self::Empty { .. } => "remove the source, or give it documents of at least two tokens".into(),
            Self::Weight { .. } => "remove a source that should give nothing".into(),
            Self::Limit { .. } | Self::Tokenizer { .. } => return None,
        })
    }
}
