//! What can go wrong with plans.

/// What can go wrong with plans.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no schedule like this.
    #[error("there is no schedule of {micro_batches} micro-batches over {stages} stages: {reason}")]
    Schedule {
        /// How many stages were asked for.
        stages: usize,
        /// How many micro-batches were asked for.
        micro_batches: usize,
        /// Why not.
        reason: String,
    },
}
