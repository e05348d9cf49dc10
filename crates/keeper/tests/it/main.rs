//! Keepers and trainers, most of them processes of their own that are killed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod deaths;
mod hostile;
mod memory;
mod rank;
mod world;
