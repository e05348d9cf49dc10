//! Training with every kind of parallelism, on the state core of Cairn.
//!
//! | to | use |
//! |---|---|
//! | choose how a run goes | [`Settings`], or a file: [`config::read`] |
//! | know all that is wrong with a choice | [`problems`] |
//! | say where tokens come from | [`Data`] |
//! | hear how it goes | [`Event`], [`StepReport`] |

pub mod config;
mod data;
mod error;
mod parallel;
mod report;
pub mod settings;

pub use data::Data;
pub use error::Error;
pub use parallel::{Layout, Problem, axis_size, problems};
pub use report::{Ending, Evaluation, Event, Progress, StepReport};
pub use settings::Settings;
