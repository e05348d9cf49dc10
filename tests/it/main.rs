//! Whole-system tests: processes, folders and what becomes of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod kill;
