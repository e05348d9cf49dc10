//! What a block of a model is, and what passes through it.

use crate::Error;
use cairn_arena::Parameter;
use cairn_collectives::Communicator;
use cairn_kernels::{Pool, Real};
use std::any::Any;
use std::fmt::Debug;

/// The target of a token whose loss does not count.
pub const IGNORED: i64 = -100;

/// What flows between blocks: `[tokens, width]` row by row, all sequences of a micro-batch one after another. With sequence parallelism each rank of the
/// `tp` axis holds its share of the rows, as `chunk` cuts them.
pub type Activation<R> = Vec<R>;

/// What a block keeps from its forward for its backward.
pub type Saved = Box<dyn Any + Send>;

/// The tokens of one micro-batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// How many sequences there are.
    pub sequences: usize,
    /// How many tokens each has.
    pub length: usize,
    /// The tokens, sequence by sequence.
    pub tokens: Vec<u32>,
    /// The token that should follow each, or [`IGNORED`].
    pub targets: Vec<i64>,
    /// The place of each token in its document, for rotary embeddings.
    pub positions: Vec<u32>,
    /// The document of each token, counted in its sequence; tokens see only tokens of their own document.
    pub documents: Vec<u32>,
    /// The number of each sequence in the run: with the seed, step and layer, it decides all randomness.
    pub samples: Vec<u64>,
}

/// How much of a forward is kept for the backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// All that the backward needs.
    #[default]
    Everything,
    /// What is dear to compute again; the rest is computed again.
    Selected,
    /// Only the input: the backward runs the forward again.
    Input,
    /// Nothing: there will be no backward.
    Nothing,
}

/// All that a pass through a block needs besides weights and activations.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a> {
    /// The threads of this rank.
    pub pool: &'a Pool,
    /// The ranks that share the block; a group of one without tensor parallelism.
    pub tp: &'a dyn Communicator,
    /// Whether those ranks share the rows between the parallel regions.
    pub sequence_parallel: bool,
    /// The tokens.
    pub batch: &'a Batch,
    /// The seed of the run.
    pub seed: u64,
    /// The step, for randomness.
    pub step: u64,
    /// Whether there is dropout.
    pub training: bool,
}

/// A part of a model with its own backward. Its parameters are one slice, in the order of [`parameters`](Self::parameters), cut for this rank.
///
/// The first block of a model makes activations from the tokens and gets an empty one; the last returns the loss of each token (0 where it does
/// not count), the same on every rank of the group, and gets the derivative with respect to each.
pub trait Block<R: Real>: Debug + Send + Sync {
    /// The parameters, whole.
    fn parameters(&self) -> Vec<Parameter>;

    /// What follows from `input`.
    ///
    /// # Collective
    /// # Errors
    /// If a rank of the group does not come along.
    fn forward(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: Activation<R>,
        keep: Keep,
    ) -> Result<(Activation<R>, Saved), Error>;

    /// The gradient of the input; the gradients of the parameters are added to `gradients`.
    ///
    /// # Collective
    /// # Errors
    /// If a rank of the group does not come along.
    fn backward(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        saved: Saved,
        output_gradient: Activation<R>,
        gradients: &mut [R],
    ) -> Result<Activation<R>, Error>;
}
