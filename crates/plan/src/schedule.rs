//! What each stage of a pipeline does, in order.

/// Which way a micro-batch goes through a chunk of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// From input to output.
    Forward,
    /// From the gradient of the output to that of the input.
    Backward,
}

/// One thing that a stage does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Action {
    /// Which way.
    pub work: Work,
    /// Which micro-batch.
    pub micro_batch: usize,
    /// Which of the stage's chunks of layers; chunk `c` of stage `s` of `n` is part `c · n + s` of the model.
    pub chunk: usize,
}

/// What every stage does, in order. Activations go from each part of the model to the next, gradients back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// How many micro-batches there are.
    pub micro_batches: usize,
    /// How many chunks of layers each stage has.
    pub chunks: usize,
    /// The actions of each stage.
    pub stages: Vec<Vec<Action>>,
}
