//! A merge: planned, looked at, then written or read from.

use crate::Error;
use crate::assets::assets;
use crate::config::{Config, Problem};
use crate::methods::Method;
use crate::models::Model;
use crate::output::{CHUNK_BYTES, CHUNKS};
use crate::passes::BLOCK;
use crate::plan::{TensorPlan, plan};
use crate::tokenizer::Vocabulary;
use sha2::{Digest, Sha256};
use std::thread::available_parallelism;

/// What can be chosen for a merge beside its config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Threads that work at once. The result does not depend on it.
    pub threads: usize,
    /// The most data in one file.
    pub shard_bytes: u64,
    /// Decides the random numbers of methods that draw some.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: available_parallelism().map_or(1, usize::from),
            shard_bytes: 5_000_000_000,
            seed: 0,
        }
    }
}

/// A config applied to the models it names: every tensor of the result is known, and none is worked out.
pub struct Merge {
    pub(crate) config: Config,
    pub(crate) models: Vec<Model>,
    pub(crate) vocabulary: Option<Vocabulary>,
    pub(crate) tensors: Vec<TensorPlan>,
    pub(crate) assets: Vec<(String, Vec<u8>)>,
    pub(crate) options: Options,
    /// Tells this merge from every other.
    pub(crate) identity: String,
}

/// What a merge will cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// Tensors of the result.
    pub tensors: usize,
    /// Elements of the result.
    pub elements: u64,
    /// Bytes read from the models, each as often as it is looked at.
    pub read_bytes: u64,
    /// Bytes of the result's tensors.
    pub write_bytes: u64,
    /// The most memory it takes.
    pub memory_bytes: u64,
    /// Elements worked on: one for each model and look.
    pub work: u64,
}

impl Merge {
    /// Opens the models of a config and works out what becomes of each tensor.
    ///
    /// # Errors
    /// Everything that keeps the models from being merged, at once.
    pub fn new(config: Config, options: Options) -> Result<Self, Error> {
        let models = open(&config)?;
        let vocabulary = Vocabulary::new(&config, &models)?;
        let mut tensors = plan(&config, &models, vocabulary.as_ref())?;
        if let Some(extras) = &config.paddle {
            tensors.retain(|tensor| !extras.remove_keys.contains(&tensor.name));
        }
        let seed = config.method.is_random.then_some(options.seed);
        let assets = assets(&config, &models, &tensors, vocabulary.as_ref(), seed)?;
        let identity = identity(&config, &models, &options);
        Ok(Self {
            config,
            models,
            vocabulary,
            tensors,
            assets,
            options,
            identity,
        })
    }

    /// The config.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What in the config is strange and harmless.
    pub fn warnings(&self) -> &[Problem] {
        &self.config.warnings
    }

    /// The names of the small files that come with the tensors.
    pub fn assets(&self) -> impl Iterator<Item = &str> {
        self.assets.iter().map(|(name, _)| name.as_str())
    }

    /// What it will cost.
    pub fn cost(&self) -> Cost {
        let mut cost = Cost {
            tensors: self.tensors.len(),
            elements: 0,
            read_bytes: 0,
            write_bytes: 0,
            memory_bytes: 0,
            work: 0,
        };
        let threads = self.options.threads as u64;
        for tensor in &self.tensors {
            let elements = tensor.elements();
            let passes = tensor.method.passes(key_bits(tensor));
            let size = |dtype: cairn_tensor::DType| dtype.bits() as u64 / 8;
            let inputs = tensor
                .inputs
                .iter()
                .filter_map(|(model, name)| self.models[*model].find(name));
            let width: u64 = inputs.map(|stored| size(stored.dtype)).sum();
            cost.elements += elements as u64;
            cost.read_bytes += width * elements as u64 * passes;
            cost.write_bytes += size(tensor.tensor.dtype) * elements as u64;
            cost.work += elements as u64 * tensor.inputs.len() as u64 * passes;
            let wide = 8 * (2 * tensor.inputs.len() as u64 + 3);
            let remembered = match &tensor.method {
                Method::Tasks(tasks) => {
                    let (shape, threads) = (&tensor.tensor.shape, self.options.threads);
                    tasks.memory_bytes(shape, tensor.inputs.len(), threads) as u64
                }
                _ => 0,
            };
            let tables = (tensor.inputs.len() as u64 * 8) << 16;
            let memory = threads * (wide * BLOCK as u64 + tables) + remembered;
            cost.memory_bytes = cost.memory_bytes.max(memory);
        }
        cost.memory_bytes += (CHUNKS * CHUNK_BYTES) as u64;
        cost
    }
}

fn key_bits(tensor: &TensorPlan) -> u32 {
    match tensor.arithmetic {
        cairn_tensor::DType::Bf16 => 16,
        cairn_tensor::DType::F64 => 64,
        _ => 32,
    }
}

/// Opens every model of a config, or tells all that cannot be opened.
fn open(config: &Config) -> Result<Vec<Model>, Error> {
    let mut models = Vec::new();
    let mut problems = Vec::new();
    for reference in config.models() {
        match Model::open(reference) {
            Ok(model) => models.push(model),
            Err(error) => problems.push(told(reference.to_string(), &error)),
        }
    }
    match problems.is_empty() {
        true => Ok(models),
        false => Err(Error::Models { problems }),
    }
}

/// An error with its causes, in one line.
fn told(mut text: String, error: &dyn std::error::Error) -> String {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let next = error.to_string();
        text = match next.contains(&text) {
            true => next,
            false => format!("{text}: {next}"),
        };
        cause = error.source();
    }
    text
}

fn identity(config: &Config, models: &[Model], options: &Options) -> String {
    let mut hash = Sha256::new();
    hash.update(env!("CARGO_PKG_VERSION"));
    hash.update(&config.text);
    hash.update(options.shard_bytes.to_le_bytes());
    hash.update(options.seed.to_le_bytes());
    for model in models {
        model.fingerprint(&mut hash);
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
