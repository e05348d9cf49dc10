//! Steps that cannot be used.

/// A step that was passed over on the way to a good one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The step.
    pub step: u64,
    /// Why it cannot be used.
    pub reason: String,
}
