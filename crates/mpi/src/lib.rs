//! Ranks as processes that MPI starts: `mpirun -n 4 cairn train …`.
//!
//! MPI is used as a transport of messages between processes, also of several machines; what is done with them is
//! [`cairn_collectives::messages`], so results have the same bits as with ranks that are threads. One thread of each process makes all calls of
//! MPI, because many builds of it allow no more.
//!
//! A library of MPI fits only the programs that were built for it. So this crate is empty unless its feature `mpi` is chosen,
//! which builds it for the MPI whose `mpicc` is found.
//!
//! ```no_run
//! # #[cfg(feature = "mpi")] {
//! use cairn_mpi::{Options, World};
//!
//! let world = World::start(Options::default())?;
//! world.run(|group| group.barrier())?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! How a run ends: a rank that fails tells all others why, and they fail, too. Who then does not leave in time, because it hangs, is ended
//! with `MPI_Abort`. If a process is killed, `mpirun` ends the others.

#[cfg(feature = "mpi")]
mod error;
#[cfg(feature = "mpi")]
mod server;
#[cfg(feature = "mpi")]
mod world;

#[cfg(feature = "mpi")]
pub use error::Error;
#[cfg(feature = "mpi")]
pub use world::{Options, World};
