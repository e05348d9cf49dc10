//! What can go wrong with data.

/// What can go wrong with data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error(transparent)]
    Store(#[from] cairn_store::Error),
}
