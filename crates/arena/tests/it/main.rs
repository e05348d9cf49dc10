//! Arenas on ranks that are threads: whatever ranks share out, the model is the same.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests, with small numbers"
)]

mod checkpoints;
mod common;
mod layouts;
mod memory;
mod overlap;
mod steps;
mod torch;
