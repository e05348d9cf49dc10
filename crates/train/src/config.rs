//! A run as a TOML file tells it: what to train, on what, and how.
//!
//! [`Config`] is plain values. [`read`] makes them from a file and the settings of a command line, and says everything that is wrong at once, each
//! problem with its line and what to do about it.

mod cautions;
mod estimate;
mod fields;
mod launch;
mod node;
mod problem;
mod read;
mod reader;
mod sections;
mod sequences;
mod speed;
#[cfg(test)]
mod tests;

pub use cautions::cautions;
pub use estimate::{Holding, holdings};
pub use launch::{Moment, check_inputs, launch, launch_rank};
pub use problem::{Place, Problem, Problems};
pub use read::{parse, read};
pub use speed::{peak_flops, step_flops, step_tokens};

use crate::settings::Settings;
use cairn_data::Cut;
use cairn_model::{Block, ModelConfig, Options, blocks};
use cairn_store::Tiered;

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
    /// The durable tier behind the folder, if there is one.
    pub durable: Option<Durable>,
    /// What is measured beside the training; nothing if none.
    pub evaluation: Option<Evaluation>,
    /// What is told of each step.
    pub log: Log,
    /// Whether the run is taken from a trainer that may still be at it. No file says so.
    pub take_over: bool,
}

/// What is trained.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// What it is like.
    pub config: ModelConfig,
    /// The model or checkpoint whose weights are the first ones; random ones if none.
    pub weights: Option<String>,
    /// The `tokenizer.json` that goes into every checkpoint, so that whoever has one can read and write text.
    pub tokenizer: Option<String>,
    /// The weight of the term of the loss that keeps logits small.
    pub z_loss: f64,
}

/// What a model is trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct Data {
    /// Where tokens come from.
    pub sources: Vec<Source>,
    /// Tokens of a sequence.
    pub length: usize,
    /// How documents become sequences.
    pub cut: Cut,
}

/// A place where tokens come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// A token file, or a pair of Megatron's.
    pub path: String,
    /// Its share of the sequences, against the weights of the others.
    pub weight: f64,
}

/// Where checkpoints stay, if the folder of the run is only a fast disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durable {
    /// The address of the store.
    pub address: String,
    /// Whether each node has a folder of its own.
    pub is_per_node: bool,
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

impl Config {
    /// The address of the run: its folder, or that and the durable tier behind it.
    pub fn address(&self) -> String {
        match &self.durable {
            Some(durable) => Tiered::address(&self.folder, &durable.address, durable.is_per_node),
            None => self.folder.clone(),
        }
    }

    /// The blocks of the model, in order.
    pub fn blocks(&self) -> Vec<Box<dyn Block<f32>>> {
        let options = Options {
            sequence_parallel: self.settings.parallel.sequence_parallel,
            z_loss: self.model.z_loss,
        };
        blocks(&self.model.config, &options)
    }
}
