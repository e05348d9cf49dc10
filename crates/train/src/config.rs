//! A run as a TOML file tells it: what to train, on what, and how.
//!
//! [`Config`] is plain values. [`read`] makes them from a file and the settings of a command line, and says everything that is wrong at once, each
//! problem with its line and what to do about it.

mod node;
mod problem;
mod read;
mod reader;
mod sections;
#[cfg(test)]
mod tests;

pub use problem::{Place, Problem, Problems};
pub use read::{parse, read};

use crate::settings::Settings;
use serde_json::Value;

/// A run, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What the loop is told.
    pub settings: Settings,
    /// What is trained.
    pub model: Model,
    /// What it is trained on.
    pub data: Data,
    /// The folder of the run, where checkpoints go.
    pub folder: String,
    /// What is measured beside the training; nothing if none.
    pub evaluation: Option<Evaluation>,
    /// What is told of each step.
    pub log: Log,
}

/// What is trained.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The architecture, as a `config.json` of Hugging Face has it.
    pub description: Value,
    /// The folder of a model whose weights are the first ones; random ones if none.
    pub weights: Option<String>,
}

/// What a model is trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct Data {
    /// Where tokens come from.
    pub sources: Vec<Source>,
    /// Tokens of a sequence.
    pub length: usize,
    /// What makes tokens of sources that are text: the path of a `tokenizer.json`, or `bytes`.
    pub tokenizer: Option<String>,
    /// How documents become sequences.
    pub packing: Packing,
}

/// A place where tokens come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// A token file, a Megatron `.bin`, or text (`.txt`, `.jsonl`).
    pub path: String,
    /// Its share of the sequences, against the weights of the others.
    pub weight: f64,
}

/// How documents become sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packing {
    /// One stream, cut wherever a sequence is full; attention crosses documents.
    #[default]
    Stream,
    /// Documents side by side; none sees another.
    Documents,
}

/// What is measured beside the training.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Steps from one to the next.
    pub every: u64,
    /// Where its tokens come from.
    pub sources: Vec<Source>,
    /// How many batches are looked at, always the same ones.
    pub batches: u64,
}

/// What is told of each step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Where `metrics.jsonl` and events go.
    pub folder: String,
    /// Steps from one printed line to the next; every step is written down.
    pub every: u64,
    /// Whether events for TensorBoard are written, too.
    pub tensorboard: bool,
}
