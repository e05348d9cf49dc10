//! Where the ranks of a run are: threads of this process, or processes that MPI started.

use crate::error::Error;
use cairn::train::Ending;
use cairn::train::config::{Config, Moment, launch};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where launchers of MPI say how many processes they started.
const PROCESSES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Where they say how many of these are on this machine.
#[cfg(feature = "mpi")]
const NEIGHBOURS: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];

/// Where the ranks of a run are.
pub(super) enum Ranks {
    /// In this process.
    Threads,
    /// One in each process.
    #[cfg(feature = "mpi")]
    Processes(cairn::mpi::World),
}

impl Ranks {
    /// Finds out how this process was started.
    pub(super) fn find() -> Result<Self, Error> {
        match number(PROCESSES) {
            None | Some(1) => Ok(Self::Threads),
            #[cfg(feature = "mpi")]
            Some(_) => {
                let options = cairn::mpi::Options::default();
                Ok(Self::Processes(cairn::mpi::World::start(options)?))
            }
            #[cfg(not(feature = "mpi"))]
            Some(processes) => Err(Error::NoMpi { processes }),
        }
    }

    /// Whether all are in this process, and so share its memory.
    pub(super) fn are_threads(&self) -> bool {
        matches!(self, Self::Threads)
    }

    /// Whether this process is the one that tells how it goes.
    pub(super) fn has_first(&self) -> bool {
        match self {
            Self::Threads => true,
            #[cfg(feature = "mpi")]
            Self::Processes(world) => world.group().rank() == 0,
        }
    }

    /// Trains.
    pub(super) fn launch(
        &self,
        config: &Config,
        stop: &Arc<AtomicBool>,
        watch: &mut (dyn FnMut(Moment<'_>) + Send),
    ) -> Result<Ending, Error> {
        match self {
            Self::Threads => Ok(launch(config, stop, watch)?),
            #[cfg(feature = "mpi")]
            Self::Processes(world) => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let neighbours = number(NEIGHBOURS).unwrap_or(world.group().size());
                let threads = cores / neighbours.max(1);
                let ending = world.run(|group| {
                    cairn::train::config::launch_rank(config, group.clone(), threads, stop, watch)
                });
                Ok(ending?)
            }
        }
    }
}

/// The first of these variables that is a number.
fn number(names: [&str; 2]) -> Option<usize> {
    let values = names
        .into_iter()
        .filter_map(|name| std::env::var(name).ok());
    values.filter_map(|value| value.parse().ok()).next()
}
