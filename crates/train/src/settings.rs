//! Everything about a run that a person chooses, as plain data.

use cairn_checkpoint::retention::{Abandoned, Best, Keep, Within};
use cairn_sharding::Mesh;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Everything about a run that a person chooses, except its model and its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Decides all randomness: first values and dropout.
    pub seed: u64,
    /// The step after which the run is over.
    pub steps: u64,
    /// How many sequences all ranks together take in one step; the most, if `tokens` decide.
    pub batch: usize,
    /// The most tokens of one step, counted with the padding that makes its sequences as long as the longest: a step takes as many sequences as fit.
    pub tokens: Option<usize>,
    /// Keys, or tables of them, that may differ from what a run began with though they decide what it means: `seed`, `data`, `optimizer.betas`.
    pub may_change: Vec<String>,
    /// Over which ranks the work goes, and how.
    pub parallel: Parallel,
    /// How parameters follow from gradients.
    pub optimizer: Optimizer,
    /// The folder for files that hold what the optimizer remembers, in place of memory.
    pub offload: Option<String>,
    /// How far parameters move, step by step.
    pub learning_rate: LearningRate,
    /// The greatest norm of all gradients together; greater ones are scaled down to it.
    pub clip: Option<f64>,
    /// What parameters are stored as.
    pub precision: Precision,
    /// What of a forward is kept for the backward.
    pub recompute: Recompute,
    /// How many steps in a row may be skipped because the loss or a gradient is not finite.
    pub max_skipped: u64,
    /// When to save, and what stays.
    pub checkpoints: Checkpoints,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            steps: 1000,
            batch: 8,
            tokens: None,
            may_change: Vec::new(),
            parallel: Parallel::default(),
            optimizer: Optimizer::default(),
            offload: None,
            learning_rate: LearningRate::default(),
            clip: Some(1.0),
            precision: Precision::default(),
            recompute: Recompute::default(),
            max_skipped: 10,
            checkpoints: Checkpoints::default(),
        }
    }
}

/// Over which ranks the work goes, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parallel {
    /// The axes `dp` (data), `pp` (pipeline) and `tp` (tensors), in any order; one that is missing has size 1.
    #[serde(with = "mesh_text")]
    pub mesh: Mesh,
    /// Whether the ranks of the `tp` axis also share the rows between the parallel regions of a block.
    pub sequence_parallel: bool,
    /// What the ranks of the `dp` axis share out: 0 nothing, 1 the optimizer's state, 2 also gradients, 3 also parameters.
    pub zero: u8,
    /// How many chunks of layers each stage of the pipeline has.
    pub chunks: usize,
    /// In how many parts, one after another, a rank takes its sequences of a step.
    pub micro_batches: usize,
    /// How many blocks (the embedding, each layer, the head) each part of the pipeline has; balanced if not given.
    pub blocks: Option<Vec<usize>>,
}

impl Default for Parallel {
    fn default() -> Self {
        Self {
            mesh: Mesh::single(),
            sequence_parallel: false,
            zero: 0,
            chunks: 1,
            micro_batches: 1,
            blocks: None,
        }
    }
}

/// How parameters follow from gradients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Optimizer {
    /// Adam with decoupled weight decay.
    AdamW {
        /// How much of each average of gradients, and of their squares, stays.
        betas: (f64, f64),
        /// Keeps the divisor from zero.
        epsilon: f64,
        /// How much parameters shrink, in units of the learning rate.
        weight_decay: f64,
    },
    /// Gradients with momentum.
    Sgd {
        /// How much of the movement before stays.
        momentum: f64,
        /// Whether the gradient is taken where momentum leads.
        nesterov: bool,
        /// How much parameters shrink, in units of the learning rate.
        weight_decay: f64,
    },
}

impl Optimizer {
    /// How much parameters shrink, in units of the learning rate.
    pub fn weight_decay(&self) -> f64 {
        let (Self::AdamW { weight_decay, .. } | Self::Sgd { weight_decay, .. }) = self;
        *weight_decay
    }
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::AdamW {
            betas: (0.9, 0.95),
            epsilon: 1e-8,
            weight_decay: 0.1,
        }
    }
}

/// How far parameters move, step by step: up to `peak` in `warmup` steps, then as `shape` says, down to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearningRate {
    /// The greatest.
    pub peak: f64,
    /// The last.
    pub end: f64,
    /// The steps up to the greatest.
    pub warmup: u64,
    /// How it goes down.
    pub shape: Shape,
}

impl Default for LearningRate {
    fn default() -> Self {
        Self {
            peak: 3e-4,
            end: 3e-5,
            warmup: 0,
            shape: Shape::Cosine,
        }
    }
}

/// How the learning rate goes down.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Not at all.
    Constant,
    /// In a straight line.
    Linear,
    /// Along half a wave.
    #[default]
    Cosine,
    /// Not at all, then in a straight line in this many steps at the end.
    Stable {
        /// The steps at the end.
        decay: u64,
    },
    /// Along a power of the way that is left.
    Polynomial {
        /// The power.
        power: f64,
    },
}

/// What parameters are stored as; arithmetic is done in `f32` always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// As the optimizer has them.
    #[default]
    F32,
    /// Rounded; the optimizer keeps them in `f32`, too.
    Bf16,
}

/// What of a forward is computed again in the backward instead of being kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// All is kept, nothing is computed again.
    #[default]
    Nothing,
    /// What is cheap to compute again is.
    Selected,
    /// Each block runs its forward again.
    Everything,
}

/// When to save, and what stays.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoints {
    /// Save after every so many steps. The last step, and one after which the run is told to stop, are saved in any case.
    pub every: Option<u64>,
    /// How many of the newest steps stay; all, if not given.
    pub keep_last: Option<usize>,
    /// Steps that are multiples of this stay, too.
    pub keep_every: Option<u64>,
    /// The best steps by `loss`, or by `eval_loss` of those that were evaluated, stay, too.
    pub keep_best: Vec<Best>,
    /// Steps of a time before now stay, too.
    pub keep_within: Vec<Within>,
    /// Which of the steps that the run abandoned when it went back stay, too.
    pub keep_abandoned: Abandoned,
    /// How many seconds the files of a deleted step stay for those who read it.
    pub keep_grace: u64,
    /// How many saves in a row may fail before the run ends; any number if not given.
    pub max_failed: Option<u64>,
    /// Keep a running average of the weights that keeps so much of itself with every step, such as 0.999.
    pub ema: Option<f64>,
    /// Write only what changed since the step before, and refer to it for the rest.
    pub delta: bool,
    /// Compress what is written, without loss.
    pub compress: bool,
}

impl Checkpoints {
    /// Which steps stay; `None` if all do.
    pub fn keep(&self) -> Option<Keep> {
        let rules = self.keep_last.is_some()
            || self.keep_every.is_some()
            || !self.keep_best.is_empty()
            || !self.keep_within.is_empty();
        rules.then(|| Keep {
            last: self.keep_last.unwrap_or(1),
            every: self.keep_every,
            best: self.keep_best.clone(),
            within: self.keep_within.clone(),
            abandoned: self.keep_abandoned,
            grace: Duration::from_secs(self.keep_grace),
            read_share: 0.0,
        })
    }
}

/// A mesh as the text it prints as.
mod mesh_text {
    use cairn_sharding::Mesh;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(mesh: &Mesh, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(mesh)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Mesh, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_from_their_text() {
        let mut settings = Settings::default();
        settings.parallel.mesh = "dp=2,tp=3".parse().unwrap();
        settings.learning_rate.shape = Shape::Stable { decay: 10 };
        let text = serde_json::to_string(&settings).unwrap();
        assert!(text.contains("\"mesh\":\"dp=2,tp=3\""));
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let error = serde_json::from_str::<Settings>("{\"sed\": 1}").unwrap_err();
        assert!(error.to_string().contains("unknown field `sed`"));
    }
}
