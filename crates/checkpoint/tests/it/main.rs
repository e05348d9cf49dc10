//! Whole-engine tests of saving, committing and loading.

mod common;
mod edges;
mod roundtrip;
