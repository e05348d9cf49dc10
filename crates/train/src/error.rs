//! What can go wrong with training.

/// What can go wrong with training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A group of ranks failed.
    #[error(transparent)]
    Collective(#[from] cairn_collectives::Error),
}
