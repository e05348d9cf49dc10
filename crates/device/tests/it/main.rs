//! Copies from a device while its owner goes on, against a simulated one; a real one where there is one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod cuda;
mod order;
