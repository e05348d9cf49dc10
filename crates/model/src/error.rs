//! What can go wrong with models.

/// What can go wrong with models.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A group of ranks failed.
    #[error(transparent)]
    Collective(#[from] cairn_collectives::Error),
}
