//! Training with every kind of parallelism, on the state core of Cairn.
//!
//! | to | use |
//! |---|---|
//! | choose how a run goes | [`Settings`], or a file: [`config::read`] |
//! | know all that is wrong with a choice | [`problems`] |
//! | say where tokens come from | [`Data`] |
//! | train | [`Job`] → [`Trainer::new`] → [`resume`](Trainer::resume) → [`run`](Trainer::run) |
//! | train a model of one's own | [`Block`](cairn_model::Block), as in `examples/custom_model.rs` |
//! | look at losses or logits without training | [`Trainer::evaluate`], [`Trainer::predict`] |
//! | hear how it goes | [`Event`], [`StepReport`] |
//! | train as a file says, with ranks as threads | [`config::launch`] |
//! | have the weights of a model in memory | [`weights::whole`] |
//!
//! A rank knows its place in the mesh ([`Layout`]), the blocks of its pipeline stage, and one [`Arena`](cairn_arena::Arena) with their
//! memory. A step runs a [`Schedule`](cairn_plan::Schedule) over them:
//!
//! ```text
//! forward    receive │ prefetch(next) weights → block.forward  release │ … │ send
//! backward   receive │ prefetch(next) weights → block.backward release ready │ … │ send      gradients are summed behind its back
//! at the end loss over all ranks │ norm, clipping, optimizer │ save behind its back
//! ```
//!
//! The loss is the sum over all tokens of the global batch that count, divided by their number. So accumulation, data parallelism and one large batch
//! give the same.

mod ahead;
pub mod config;
mod data;
mod error;
mod executor;
mod fingerprint;
mod link;
mod parallel;
mod report;
pub mod settings;
mod stage;
mod trainer;
pub mod weights;

pub use data::Data;
pub use error::Error;
pub use parallel::{Layout, Problem, axis_size, problems};
pub use report::{Ending, Evaluation, Event, Prediction, Progress, StepReport};
pub use settings::Settings;
pub use trainer::{Home, Job, Listener, Resumed, Trainer};
