//! What can go wrong with the memory of parameters.

/// What can go wrong with the memory of parameters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A group of ranks failed.
    #[error(transparent)]
    Collective(#[from] cairn_collectives::Error),
}
