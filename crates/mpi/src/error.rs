//! What can go wrong with MPI.

/// Why MPI cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MPI can be started once in a process.
    #[error("MPI was started in this process before")]
    Started,
    /// This MPI allows no threads.
    #[error("this MPI allows no threads beside the one that uses it")]
    Threads,
    /// A thread cannot be started.
    #[error("cannot start the thread that uses MPI")]
    Spawn(#[source] std::io::Error),
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Started => Some("keep the world for as long as the process needs it".into()),
            Self::Threads => Some("use an MPI built with support for threads".into()),
            Self::Spawn(_) => None,
        }
    }
}
