//! What to train, on what, and how: everything that a run is told.
//!
//! These are plain values, without any knowledge of files: a program fills them in, or `read` makes them from a TOML file and says everything
//! that is wrong with it at once.

use cairn_model::Keep;
use cairn_sharding::Mesh;
use serde_json::Value;

/// A run, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Decides the first weights, the order of the data and all dropout.
    pub seed: u64,
    /// How many steps there are in all.
    pub steps: u64,
    /// What is trained.
    pub model: Model,
    /// What it is trained on.
    pub data: Data,
    /// How much of it at a time.
    pub batch: Batch,
    /// How weights follow gradients.
    pub optimizer: Optimizer,
    /// How fast they do, step by step.
    pub learning_rate: LearningRate,
    /// Which ranks there are, and what each does.
    pub parallel: Parallel,
    /// Where and when state is saved; nowhere if none.
    pub checkpoints: Option<Checkpoints>,
    /// What is measured beside the training; nothing if none.
    pub evaluation: Option<Evaluation>,
    /// What is written down of each step.
    pub log: Log,
}

/// What is trained.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The architecture, as a `config.json` of Hugging Face has it.
    pub description: Value,
    /// The folder of a model whose weights are the first; random ones if none.
    pub weights: Option<String>,
    /// The share of activations that dropout sets to zero.
    pub dropout: f64,
    /// The share of `log(Z)²` that is added to the loss.
    pub z_loss: f64,
}

/// What a model is trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct Data {
    /// Where tokens come from.
    pub sources: Vec<Source>,
    /// What makes tokens of sources that are text: the path of a `tokenizer.json`, or `bytes`.
    pub tokenizer: Option<String>,
    /// How documents become sequences.
    pub packing: Packing,
}

/// A place where tokens come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// A token file, a Megatron `.bin` or `.idx`, or text (`.txt`, `.jsonl`).
    pub path: String,
    /// Its share of the samples, against the weights of the others.
    pub weight: f64,
}

/// How documents become sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packing {
    /// One stream, cut wherever a sequence is full; attention crosses documents.
    #[default]
    Stream,
    /// Whole documents side by side; none sees another.
    Documents,
}

/// How much data is looked at, at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Sequences of a step, over all ranks.
    pub sequences: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// Sequences that go through the model at once; the rest of a rank's share follows as further micro-batches.
    pub micro_batch: usize,
}

/// How weights follow gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Optimizer {
    /// The rule.
    pub rule: Rule,
    /// The share of each weight that is taken away per unit of learning rate.
    pub weight_decay: f64,
    /// The greatest norm of all gradients together; larger ones are scaled down. No limit if none.
    pub clip: Option<f64>,
    /// How many steps with a loss that is no number may be left out, one after another, before the run ends.
    pub skip_at_most: u32,
}

/// The rule of an optimizer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// Adam with decoupled weight decay.
    AdamW {
        /// How much of its averages each step keeps.
        betas: (f64, f64),
        /// Keeps the divisor from zero.
        epsilon: f64,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// How much of its direction each step keeps.
        momentum: f64,
    },
}

/// The learning rate of each step: it rises to its peak in a line, then falls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRate {
    /// The greatest.
    pub peak: f64,
    /// How many steps it rises.
    pub warmup_steps: u64,
    /// How it falls after that.
    pub decay: Decay,
    /// What is left at the last step, as a share of the peak.
    pub final_share: f64,
}

/// How a learning rate falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decay {
    /// Not at all.
    Constant,
    /// In a line.
    Linear,
    /// As half a cosine.
    #[default]
    Cosine,
}

/// Which ranks there are, and what each does.
#[derive(Debug, Clone, PartialEq)]
pub struct Parallel {
    /// The axes `dp`, `pp` and `tp`, in any order; those not named are 1.
    pub mesh: Mesh,
    /// What the ranks of the `dp` axis share out: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 parameters too.
    pub zero: u8,
    /// Whether the ranks of the `tp` axis share the sequence outside of attention and products.
    pub sequence_parallel: bool,
    /// How the stages of the `pp` axis take turns.
    pub schedule: Schedule,
    /// How many chunks of layers each stage has; more than one only if interleaved.
    pub chunks: usize,
    /// What a forward keeps for its backward.
    pub keep: Keep,
    /// What parameters are stored as between steps; all arithmetic is in `f32`.
    pub dtype: Precision,
    /// Threads of each rank; the machine's cores are shared out if none.
    pub threads: Option<usize>,
}

/// How the stages of a pipeline take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// One forward, one backward.
    #[default]
    OneForwardOneBackward,
    /// The same, with several chunks of layers for each stage.
    Interleaved,
    /// All forwards, then all backwards.
    GPipe,
}

/// What parameters are stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits; the optimizer keeps 32.
    Bf16,
}

/// Where and when state is saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoints {
    /// The folder of the run.
    pub folder: String,
    /// Steps from one to the next.
    pub every: u64,
    /// How many of the newest are kept; all if none.
    pub keep_last: Option<usize>,
    /// Steps that are a multiple of this are kept in any case.
    pub keep_every: Option<u64>,
    /// How much of an average of the weights each step keeps; no average if none.
    pub average: Option<f64>,
}

/// What is measured beside the training.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Steps from one to the next.
    pub every: u64,
    /// Where its tokens come from.
    pub sources: Vec<Source>,
    /// How many batches are looked at, always the same.
    pub batches: usize,
}

/// What is written down of each step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Where `metrics.jsonl` goes; the folder of the checkpoints if none.
    pub folder: Option<String>,
    /// Steps from one printed line to the next; every step is written down.
    pub every: u64,
    /// Whether events for TensorBoard are written beside.
    pub tensorboard: bool,
}

impl Default for Optimizer {
    fn default() -> Self {
        Self {
            rule: Rule::default(),
            weight_decay: 0.1,
            clip: Some(1.0),
            skip_at_most: 3,
        }
    }
}

impl Default for Rule {
    fn default() -> Self {
        Rule::AdamW {
            betas: (0.9, 0.95),
            epsilon: 1e-8,
        }
    }
}

impl Default for LearningRate {
    fn default() -> Self {
        Self {
            peak: 3e-4,
            warmup_steps: 0,
            decay: Decay::default(),
            final_share: 0.1,
        }
    }
}

impl Default for Parallel {
    fn default() -> Self {
        Self {
            mesh: Mesh::single(),
            zero: 1,
            sequence_parallel: false,
            schedule: Schedule::default(),
            chunks: 1,
            keep: Keep::default(),
            dtype: Precision::default(),
            threads: None,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            folder: None,
            every: 1,
            tensorboard: true,
        }
    }
}

impl Config {
    /// A run of `steps` steps of this model on these sources, with defaults for the rest.
    pub fn new(steps: u64, description: Value, sources: Vec<Source>, batch: Batch) -> Self {
        Self {
            seed: 0,
            steps,
            model: Model {
                description,
                weights: None,
                dropout: 0.0,
                z_loss: 0.0,
            },
            data: Data {
                sources,
                tokenizer: None,
                packing: Packing::default(),
            },
            batch,
            optimizer: Optimizer::default(),
            learning_rate: LearningRate::default(),
            parallel: Parallel::default(),
            checkpoints: None,
            evaluation: None,
            log: Log::default(),
        }
    }
}

impl LearningRate {
    /// The learning rate of step `step` (the first is 1) of a run of `steps`.
    pub fn at(&self, step: u64, steps: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * step as f64 / self.warmup_steps as f64;
        }
        let whole = steps.saturating_sub(self.warmup_steps).max(1) as f64;
        let share = ((step - self.warmup_steps) as f64 / whole).min(1.0);
        let left = match self.decay {
            Decay::Constant => return self.peak,
            Decay::Linear => 1.0 - share,
            Decay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * share).cos()),
        };
        self.peak * (self.final_share + (1.0 - self.final_share) * left)
    }
}

#[cfg(test)]
mod tests {
    //! Learning rates at the ends of their ways.

    use super::*;

    #[test]
    fn a_learning_rate_rises_to_its_peak_and_falls_to_its_end() {
        let rate = LearningRate {
            peak: 2.0,
            warmup_steps: 10,
            decay: Decay::Cosine,
            final_share: 0.1,
        };
        assert_eq!(rate.at(5, 100), 1.0);
        assert_eq!(rate.at(10, 100), 2.0);
        assert!((rate.at(55, 100) - 1.1).abs() < 1e-12);
        assert!((rate.at(100, 100) - 0.2).abs() < 1e-12);
        assert!(
            (rate.at(1000, 100) - 0.2).abs() < 1e-12,
            "a run that goes on"
        );
    }

    #[test]
    fn a_run_that_is_all_warmup_never_divides_by_zero() {
        let rate = LearningRate {
            warmup_steps: 10,
            ..LearningRate::default()
        };
        assert_eq!(rate.at(10, 10), rate.peak);
        assert!(rate.at(0, 10).abs() < f64::EPSILON);
        assert!(LearningRate::default().at(1, 0).is_finite());
    }
}
