//! Why the ranks of a launch did not find each other.

use super::list;
use std::time::Duration;

/// Why the ranks of a launch did not find each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Meeting {
    /// Not every rank of the launch came to the run in time.
    #[error("ranks {} of the launch `{session}` have not come to this run within {} s", list(missing), waited.as_secs())]
    RanksAbsent {
        /// The name of the launch.
        session: String,
        /// The ranks that were waited for.
        missing: Vec<usize>,
        /// How long they were waited for.
        waited: Duration,
    },
    /// Two processes of one launch have the same rank.
    #[error("two processes of the launch `{session}` claim to be rank {rank}")]
    RankTwice {
        /// The name of the launch.
        session: String,
        /// The rank.
        rank: usize,
    },
}

impl Meeting {
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::RanksAbsent { .. } => {
                "nothing was committed; look at those ranks' logs. All ranks save to the same run and are given the same session name and number of ranks"
            }
            Self::RankTwice { .. } => {
                "nothing was committed; end the processes of an earlier launch that still run, and give every process a rank of its own"
            }
        }
    }
}
