//! Whole-engine tests of saving, committing and loading, in good times and bad.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod averaging;
mod common;
mod crash;
mod damage;
mod delta;
mod derived;
mod driver;
mod edges;
mod ema;
mod errors;
mod far;
mod fence;
mod give_up;
mod hostile;
mod mutation;
mod orders;
mod packed;
mod race;
mod references;
mod repair;
mod repeat;
mod resume;
mod retention;
mod rewrite;
mod roundtrip;
mod scope;
mod scrub;
mod signing;
mod statistics;
mod tiers;
mod timeline;
mod together;
mod transform;
