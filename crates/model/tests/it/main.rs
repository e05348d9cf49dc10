//! Blocks against finite differences, against themselves on other layouts, and against what they must refuse.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod chain;
mod generate;
mod gradients;
mod hugging_face;
mod parallel;
mod recompute;
mod refused;
mod samples;
