//! How far a run has come through its data.

use serde::{Deserialize, Serialize};

/// How far a run has come through its data: all that a checkpoint keeps of it.
///
/// `consumed_samples` alone decides what comes next; the rest is for people and for schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    /// How many samples were trained on, which is the position of the next.
    pub consumed_samples: u64,
    /// How many targets were trained on.
    pub consumed_tokens: u64,
    /// How often all of the data was gone through.
    pub epoch: u64,
}
