//! Who saves together: this process's rank, how many there are, and the name of the launch.

use crate::Error;
use crate::launch::Launch;
use crate::names::random_session;

/// One rank of a launch.
///
/// All ranks of a launch share the `session`; a new launch must have a new one, because it names the attempts.
/// It is the only thing ranks ever tell each other, once, before training starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    rank: usize,
    size: usize,
    session: String,
}

impl World {
    /// A launch of one rank.
    pub fn single() -> Self {
        Self {
            rank: 0,
            size: 1,
            session: random_session(),
        }
    }

    /// The launch this process is part of, by the variables its launcher set: torchrun, Slurm, MPI, Paddle or `CAIRN_RANK`.
    ///
    /// # Errors
    /// If the variables contradict each other, or do not name the launch: see [`Launch`].
    pub fn from_env() -> Result<Self, Error> {
        Launch::from_env()?.world()
    }

    /// Rank `rank` of `size`, in the launch called `session` (a job id with its restart count, for example).
    ///
    /// Returns `None` unless `rank < size`.
    pub fn new(rank: usize, size: usize, session: impl Into<String>) -> Option<Self> {
        let session = session.into();
        (rank < size).then_some(Self {
            rank,
            size,
            session,
        })
    }

    /// `size` ranks of a new launch, for ranks that are threads of one process.
    pub fn threads(size: usize) -> Vec<Self> {
        let session = random_session();
        (0..size)
            .filter_map(|rank| Self::new(rank, size, session.clone()))
            .collect()
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The launch's name.
    pub fn session(&self) -> &str {
        &self.session
    }
}
