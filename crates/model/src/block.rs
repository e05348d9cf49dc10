//! What a block of a model is, and what passes through it.

use crate::Error;
use cairn_arena::Parameter;
use cairn_collectives::Communicator;
use cairn_kernels::{Buffer, Pool, Real};
use std::any::Any;
use std::fmt::Debug;

/// The target of a token whose loss does not count.
pub const IGNORED: i64 = -100;

/// What flows between blocks: `[tokens, width]` row by row, all sequences of a micro-batch one after another. With sequence parallelism each rank of the
/// `tp` axis holds its share of the rows, as `chunk` cuts them.
pub type Activation<R> = Buffer<R>;

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
    /// How many tokens of each sequence are not only there to make it as long as the others; empty if all are more than that.
    pub lengths: Vec<usize>,
    /// What else is known about the documents of each sequence; empty if nothing is. No block of ours looks at it.
    pub fields: Vec<Vec<Option<Fields>>>,
}

/// What else is known about a document, by name.
pub type Fields = serde_json::Map<String, serde_json::Value>;

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
///
/// **Tied weights.** Two blocks of a model may list parameters of the same name, as the embedding and a head that is tied to it. Each has its own copy
/// in its own slice and adds its own part of the gradient. Whoever owns the memory sums the gradients of one name, wherever the blocks
/// live, before it updates them all alike; so they stay equal.
///
/// A block of one's own is this trait, and arithmetic from [`cairn_kernels`]:
///
/// ```
/// use cairn_arena::{Init, Parameter};
/// use cairn_kernels::Real;
/// use cairn_model::{Activation, Block, Error, Keep, Pass, Saved};
///
/// /// Adds a learned number to each column. Ranks that share the rows each have a part of the sum that is its gradient.
/// #[derive(Debug)]
/// struct Shift {
///     width: usize,
///     sequence_parallel: bool,
/// }
///
/// impl<R: Real> Block<R> for Shift {
///     fn parameters(&self) -> Vec<Parameter> {
///         vec![Parameter {
///             name: "model.shift.bias".into(),
///             shape: vec![self.width],
///             split: None,
///             init: Init::Zeros,
///             decay: false,
///             partial_gradient: self.sequence_parallel,
///         }]
///     }
///
///     fn forward(&self, _: &Pass<'_>, weights: &[R], mut input: Activation<R>, _: Keep) -> Result<(Activation<R>, Saved), Error> {
///         for row in input.chunks_mut(self.width) {
///             row.iter_mut().zip(weights).for_each(|(value, shift)| *value += *shift);
///         }
///         Ok((input, Box::new(())))
///     }
///
///     fn backward(&self, _: &Pass<'_>, _: &[R], _: Saved, gradient: Activation<R>, sums: &mut [R]) -> Result<Activation<R>, Error> {
///         for row in gradient.chunks(self.width) {
///             sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += *value);
///         }
///         Ok(gradient)
///     }
/// }
/// ```
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

    /// What the last block of a model predicts from `input`, before that is compared with any targets: as many numbers for each token, the same on every
    /// rank of the group. A block that says nothing else gives the loss of each token.
    ///
    /// # Collective
    /// # Errors
    /// If a rank of the group does not come along.
    fn predict(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: Activation<R>,
    ) -> Result<Activation<R>, Error> {
        Ok(self.forward(pass, weights, input, Keep::Nothing)?.0)
    }

    /// The gradient of the input; the gradients of the parameters are added to `gradients`.
    ///
    /// # Collective
    /// # Errors
    /// If a rank of the group does not come along.
    ///
    /// # Panics
    /// If `saved` is not what the forward of this block kept, or it kept nothing.
    fn backward(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        saved: Saved,
        output_gradient: Activation<R>,
        gradients: &mut [R],
    ) -> Result<Activation<R>, Error>;

    /// How many elements the parameters have, whole.
    fn parameter_count(&self) -> usize {
        let counts = self
            .parameters()
            .into_iter()
            .map(|parameter| parameter.shape.iter().product::<usize>());
        counts.sum()
    }

    /// About how many additions and multiplications a forward takes, on all ranks of the group together, for `tokens` tokens in sequences of
    /// `length`; a backward takes twice as many. A block that says nothing is taken for products with all of its parameters.
    fn forward_flops(&self, tokens: usize, _length: usize) -> f64 {
        2.0 * tokens as f64 * self.parameter_count() as f64
    }

    /// About how many elements a rank keeps for the backward of `tokens` tokens, if `tp` ranks share the block.
    fn kept_elements(&self, _tokens: usize, _tp: usize, _keep: Keep) -> usize {
        0
    }
}

/// What a block saved, in its own type.
///
/// # Panics
/// If it was saved by another block, or with [`Keep::Nothing`].
pub(crate) fn unpack<T: 'static>(saved: Saved) -> T {
    *saved
        .downcast()
        .expect("a backward gets what the forward of the same block kept")
}
