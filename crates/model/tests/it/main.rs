//! Blocks against finite differences, against themselves on other layouts, and against what they must refuse.

mod chain;
mod generate;
mod gradients;
mod parallel;
mod recompute;
mod refused;
mod samples;
