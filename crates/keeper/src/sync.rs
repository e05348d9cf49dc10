//! The lock of a client, or its double under the scheduler of a simulation.

#[cfg(feature = "simulate")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "simulate"))]
pub(crate) use std::sync::{Mutex, MutexGuard};
