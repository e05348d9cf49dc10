//! The arguments of `cairn sim`.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "\
A row for each stage, time to the right: `─` goes forward, `━` back, `·` waits. Numbers are micro-batches; letters
are chunks, where a stage has several. A stage KEEPS the activations of so many micro-batches, of each chunk, at most.

Only the schedule is simulated, not the optimizer, nor how messages and computation disturb each other.

Examples:
  cairn sim --stages 4 --micro-batches 8
  cairn sim --stages 4 --micro-batches 8 --chunks 2 --send 0.1
  cairn sim --stages 4 --micro-batches 16 --layers 30 --head 2.5 --svg pipeline.svg
  cairn sim --stages 2 --micro-batches 8 --layers 24 --split 13,11 --json | jq .bubble_share")]
pub(crate) struct Sim {
    /// The stages of the pipeline
    #[arg(long, value_name = "N")]
    pub(crate) stages: usize,
    /// The micro-batches of a step
    #[arg(long, value_name = "N")]
    pub(crate) micro_batches: usize,
    /// In which order stages work [default: 1f1b, or interleaved if there are chunks]
    #[arg(long)]
    pub(crate) schedule: Option<Order>,
    /// The chunks of layers on each stage [default: 1, or 2 if interleaved]
    #[arg(long, value_name = "N")]
    pub(crate) chunks: Option<usize>,
    /// How long the forward of a micro-batch takes on a stage, or in a layer, if layers are given
    #[arg(long, value_name = "TIME", default_value_t = 1.0)]
    pub(crate) forward: f64,
    /// The same for its backward
    #[arg(long, value_name = "TIME", default_value_t = 2.0)]
    pub(crate) backward: f64,
    /// How long a message takes to the next stage
    #[arg(long, value_name = "TIME", default_value_t = 0.0)]
    pub(crate) send: f64,
    /// The layers of the model, which are shared out evenly
    #[arg(long, value_name = "N")]
    pub(crate) layers: Option<usize>,
    /// What the embedding costs, in layers
    #[arg(
        long,
        value_name = "LAYERS",
        requires = "layers",
        default_value_t = 0.0
    )]
    pub(crate) embedding: f64,
    /// What the head costs, in layers
    #[arg(
        long,
        value_name = "LAYERS",
        requires = "layers",
        default_value_t = 0.0
    )]
    pub(crate) head: f64,
    /// How many layers each part of the model has, from the first to the last
    #[arg(long, value_name = "N,…", requires = "layers", value_delimiter = ',')]
    pub(crate) split: Vec<usize>,
    /// Draw it as a picture for a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<String>,
}

/// In which order stages work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// All micro-batches forward, then all back
    Gpipe,
    /// One forward, one backward, in turn
    #[value(name = "1f1b")]
    OneForwardOneBackward,
    /// The same, with several chunks of layers on each stage
    Interleaved,
}

impl Order {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Gpipe => "gpipe",
            Order::OneForwardOneBackward => "1f1b",
            Order::Interleaved => "interleaved",
        }
    }
}
