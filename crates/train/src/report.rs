//! What a run tells about itself.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What one step did. The numbers are those of all ranks together, and the same on each, except the times.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// The step, counted from 1.
    pub step: u64,
    /// The mean loss of the tokens that count.
    pub loss: f64,
    /// The norm of all gradients together, before it was clipped.
    pub gradient_norm: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// How many tokens all ranks took.
    pub tokens: u64,
    /// Whether parameters stayed as they were, because the loss or a gradient is not finite.
    pub skipped: bool,
    /// How long the step took this rank.
    pub seconds: f64,
    /// How long this rank waited for its checkpoint since the step before.
    pub stall: Duration,
    /// Whether a rank was asked to stop.
    pub stop: bool,
}

/// What a pass over data without training found.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The mean loss of the tokens that count.
    pub loss: f64,
    /// How many count.
    pub tokens: u64,
    /// The loss of each token, 0 if it does not count, in the order of the data.
    pub losses: Vec<f32>,
}

/// What a model predicts for some sequences, in the order of the data.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// How many tokens each sequence has.
    pub lengths: Vec<usize>,
    /// How many numbers there are for each token: logits are as many as the vocabulary has tokens.
    pub width: usize,
    /// The numbers, token by token.
    pub outputs: Vec<f32>,
}

/// Where a run is: what a checkpoint says besides tensors, and all that is needed to go on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps that are done.
    pub step: u64,
    /// The sequences they took: the place in the order of the data.
    pub consumed_samples: u64,
    /// The tokens they took.
    pub consumed_tokens: u64,
    /// Steps that changed nothing, because the loss or a gradient was not finite.
    pub skipped: u64,
    /// How many of them were the last in a row.
    pub skipped_in_a_row: u64,
    /// The seed of the run.
    pub seed: u64,
}

/// What [`Trainer::run`](crate::Trainer::run) tells while it goes on.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// A step is done.
    Step(&'a StepReport),
    /// A save of this step is on its way; the rank waited so long for it.
    Saving {
        /// The step.
        step: u64,
        /// How long the rank waited.
        stall: Duration,
    },
    /// A save did not succeed; the run goes on.
    SaveFailed {
        /// The step.
        step: u64,
        /// Why not.
        reason: String,
    },
}

/// Why [`Trainer::run`](crate::Trainer::run) returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All steps are done.
    Finished,
    /// A rank was asked to stop; what was done is saved.
    Stopped,
}
