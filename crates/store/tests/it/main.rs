//! Stores as their users see them, on real file systems.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod conformance;
mod crash;
mod flaky;
mod local;
mod objects;
mod tiered;
