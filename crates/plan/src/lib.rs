//! Schedules of pipelines as plain data, and what they cost.
//!
//! A model that is cut into parts, one after another on stages, trains on several micro-batches at a time. A [`Schedule`] says what
//! each stage does in which order; it can be checked, simulated and drawn before anything runs.
//!
//! | to | use |
//! |---|---|
//! | decide the order | [`Schedule::one_forward_one_backward`], [`Schedule::interleaved`], [`Schedule::gpipe`] |
//! | prove that an order works | [`Schedule::check`] |
//! | cut a model into parts | [`split_layers`], [`explicit_split`] |
//! | see what waits, and for how long | [`simulate`] |
//! | see it as a picture | [`chart::rows`] in a terminal, [`chart::svg`] in a browser |
//!
//! ```
//! use cairn_plan::{Costs, Schedule, simulate};
//!
//! let schedule = Schedule::one_forward_one_backward(4, 8)?;
//! let timeline = simulate(&schedule, &Costs::equal(4, 1.0, 2.0, 0.0))?;
//! assert_eq!(timeline.total, 33.0);
//! assert!((timeline.bubble_share() - 3.0 / 11.0).abs() < 1e-12);
//! assert_eq!(timeline.peaks, [4, 3, 2, 1]);
//! # Ok::<(), cairn_plan::Error>(())
//! ```

pub mod chart;
mod error;
mod layers;
mod play;
mod schedule;
mod simulate;

pub use error::Error;
pub use layers::{LayerCosts, MAX_LAYERS, explicit_split, split_layers};
pub use play::Span;
pub use schedule::{Action, MAX_ACTIONS, Schedule, Work};
pub use simulate::{Costs, Timeline, simulate};
