//! What can go wrong in a group.

use std::time::Duration;

/// A failure of a group of ranks.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Ranks did not make a call in time.
    #[error("`{call}` waited {:.1} s for ranks {missing:?}", waited.as_secs_f64())]
    Absent {
        /// The call.
        call: String,
        /// Who did not make it, by their ranks in the world.
        missing: Vec<usize>,
        /// How long the others waited.
        waited: Duration,
    },
    /// Ranks made calls that do not belong together.
    #[error("ranks make different calls: {}", calls.iter().map(|(rank, call)| format!("rank {rank} `{call}`")).collect::<Vec<_>>().join(", "))]
    Differ {
        /// What each rank called, by rank in the world: one for each that differs from those before it.
        calls: Vec<(usize, String)>,
    },
    /// The group has ended.
    #[error("the group has ended: {reason}")]
    Ended {
        /// Why.
        reason: String,
    },
    /// There is no such rank.
    #[error("there is no rank {rank} in a group of {size}")]
    NoRank {
        /// The rank asked for.
        rank: usize,
        /// How many there are.
        size: usize,
    },
    /// A buffer has the wrong length.
    #[error("`{call}` needs a buffer of {expected} bytes and was given {actual}")]
    Length {
        /// The call.
        call: &'static str,
        /// What the lengths of all ranks come to.
        expected: usize,
        /// What there is.
        actual: usize,
    },
    /// Elements cannot be combined.
    #[error("cannot combine elements")]
    Combine(#[from] cairn_tensor::Error),
    /// A tensor cannot be moved between layouts.
    #[error("cannot move the tensor")]
    Redistribute(#[from] cairn_reshard::Error),
    /// A value cannot be handed out.
    #[error("cannot hand out the value: {reason}")]
    Value {
        /// Why.
        reason: String,
    },
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Absent { missing, .. } => Some(format!(
                "look at what rank {} does: it hangs, is slower than the time-out, or never makes this call",
                missing.first().copied().unwrap_or_default()
            )),
            Self::Differ { .. } => Some("every rank of a group makes the same calls, with the same lengths, in the same order".into()),
            _ => None,
        }
    }
}
