//! Schedules of pipelines as plain data, and what they cost.

mod error;
mod schedule;

pub use error::Error;
pub use schedule::{Action, Schedule, Work};
