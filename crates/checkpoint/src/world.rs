//! Who saves together: this process's rank, how many there are, and the name of the launch.

use crate::Error;
use crate::launch::Launch;
use crate::names::random_session;

/// One rank of a launch.
///
/// All ranks of a launch share the `session`. A name that a launcher gave may come again with another launch: the ranks of such a launch meet in
/// the run's store before their first save, to agree on an identifier that is theirs alone. Where ranks have other means to agree on a
/// random name, [`World::unique`] says so, and they need not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    rank: usize,
    size: usize,
    session: String,
    /// Whether no other launch can have the session.
    is_unique: bool,
    /// A name that no other process has.
    process: String,
}

impl World {
    /// A launch of one rank.
    pub fn single() -> Self {
        let session = random_session();
        Self {
            rank: 0,
            size: 1,
            process: session.clone(),
            session,
            is_unique: true,
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
        (rank < size).then(|| Self {
            rank,
            size,
            session,
            is_unique: false,
            process: random_session(),
        })
    }

    /// Says that the session was drawn at random for this launch, and that no other launch can have it.
    pub fn unique(self) -> Self {
        Self {
            is_unique: true,
            ..self
        }
    }

    /// Gives this process a name, instead of a random one. No other process of any launch may have it.
    pub fn with_process(self, process: impl Into<String>) -> Self {
        Self {
            process: process.into(),
            ..self
        }
    }

    /// `size` ranks of a new launch, for ranks that are threads of one process.
    pub fn threads(size: usize) -> Vec<Self> {
        let session = random_session();
        (0..size)
            .filter_map(|rank| Self::new(rank, size, session.clone()).map(Self::unique))
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

    /// The name of this process.
    pub(crate) fn process(&self) -> &str {
        &self.process
    }

    /// The identifier of the launch, as far as this rank knows it without asking others.
    pub(crate) fn known_launch(&self) -> Option<&str> {
        match (self.is_unique, self.size) {
            (true, _) => Some(&self.session),
            // A single rank need not agree with anybody.
            (false, 1) => Some(&self.process),
            (false, _) => None,
        }
    }
}
