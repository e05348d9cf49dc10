//! A LoRA adapter in the layout of peft, or in that of Paddle.
//!
//! ```text
//! adapter_config.json                                     r, lora_alpha, use_rslora, fan_in_fan_out …
//! base_model.model.NAME.lora_A.weight            [r, in]  NAME.weight += B · A · scale
//! base_model.model.NAME.lora_B.weight           [out, r]
//! base_model.model.NAME.lora_embedding_A    [r, tokens]   the same, transposed
//! base_model.model.NAME.weight                            takes the place of NAME.weight
//!
//! lora_config.json                                        r, lora_alpha, rslora …
//! NAME.lora_A                                    [in, r]  NAME.weight, which is [in, out], += A · B · scale
//! NAME.lora_B                                   [r, out]
//! ```

use crate::Error;
use crate::input::Input;
use crate::lora::Delta;
use crate::number::Single;
use cairn_checkpoint::{SharedSource, StoredTensor};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

const CONFIG_FILE: &str = "adapter_config.json";
const PADDLE_CONFIG_FILE: &str = "lora_config.json";
const PREFIX: &str = "base_model.model.";

#[derive(Debug, Deserialize)]
struct AdapterConfig {
    #[serde(default)]
    r: usize,
    #[serde(default)]
    lora_alpha: Option<f64>,
    #[serde(default, alias = "rslora")]
    use_rslora: bool,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    fan_in_fan_out: bool,
    #[serde(default)]
    alpha_pattern: BTreeMap<String, f64>,
}

/// An adapter, ready to be added to a model.
pub(crate) struct Adapter {
    path: String,
    pub(crate) source: SharedSource,
    config: AdapterConfig,
    /// Whether matrices lie as Paddle has them, with their input first.
    is_paddle: bool,
    /// For the name of a weight, the names of its `A` and `B`, and whether it is an embedding.
    pairs: BTreeMap<String, Pair>,
    replacements: BTreeMap<String, String>,
}

#[derive(Debug, Default, Clone)]
struct Pair {
    a: Option<String>,
    b: Option<String>,
    is_embedding: bool,
}

impl Adapter {
    /// The adapter at `path`, for a model with these names.
    pub(crate) fn open(
        path: &str,
        source: SharedSource,
        names: &BTreeSet<String>,
    ) -> Result<Self, Error> {
        let fault = |file: &str, reason: String| Error::Asset {
            model: path.to_string(),
            file: file.to_string(),
            reason,
        };
        let assets = source.assets()?;
        let found = |file| assets.iter().find(|(name, _)| name == file);
        let config = found(CONFIG_FILE).or_else(|| found(PADDLE_CONFIG_FILE));
        let (file, config) = config.ok_or_else(|| fault(CONFIG_FILE, "is missing".into()))?;
        let config: AdapterConfig = serde_json::from_slice(config)
            .map_err(|error| fault(file, format!("is no adapter config: {error}")))?;
        if config.use_dora {
            return Err(fault(file, "asks for DoRA, which is not supported".into()));
        }
        let mut adapter = Self {
            path: path.to_string(),
            is_paddle: file == PADDLE_CONFIG_FILE,
            config,
            pairs: BTreeMap::new(),
            replacements: BTreeMap::new(),
            source: source.clone(),
        };
        let mut strange = Vec::new();
        for name in source.names() {
            adapter.sort(name, names, &mut strange);
        }
        match strange.as_slice() {
            [] => Ok(adapter),
            [first, ..] => Err(fault(first, "fits no weight of the model".into())),
        }
    }

    /// Finds out what a tensor of the adapter is for.
    fn sort(&mut self, name: &str, names: &BTreeSet<String>, strange: &mut Vec<String>) {
        let bare = name.strip_prefix(PREFIX).unwrap_or(name);
        for (marker, is_a, is_embedding) in [
            (".lora_A", true, false),
            (".lora_B", false, false),
            (".lora_embedding_A", true, true),
            (".lora_embedding_B", false, true),
        ] {
            let Some((module, tail)) = bare.split_once(marker) else {
                continue;
            };
            if !matches!(tail, "" | ".weight" | ".default" | ".default.weight") {
                continue;
            }
            let weight = format!("{module}.weight");
            if !names.contains(&weight) {
                strange.push(name.to_string());
                return;
            }
            let pair = self.pairs.entry(weight).or_default();
            pair.is_embedding = is_embedding;
            let half = if is_a { &mut pair.a } else { &mut pair.b };
            *half = Some(name.to_string());
            return;
        }
        match names.contains(bare) {
            true => drop(self.replacements.insert(bare.to_string(), name.to_string())),
            false => strange.push(name.to_string()),
        }
    }

    /// The adapter's own tensor for `name`.
    pub(crate) fn replacement(&self, name: &str) -> Option<&str> {
        self.replacements.get(name).map(String::as_str)
    }

    /// What is added to the weight `name`.
    pub(crate) fn delta(&self, name: &str, weight: &StoredTensor) -> Result<Option<Delta>, Error> {
        let Some(pair) = self.pairs.get(name) else {
            return Ok(None);
        };
        let fault = |reason: String| Error::Asset {
            model: self.path.clone(),
            file: format!("the adapter of {name}"),
            reason,
        };
        let (Some(a), Some(b)) = (&pair.a, &pair.b) else {
            return Err(fault("has one half only".into()));
        };
        let (a_shape, a) = self.read(a)?;
        let (b_shape, b) = self.read(b)?;
        let ([rank, input], [output, b_rank]) = (a_shape.as_slice(), b_shape.as_slice()) else {
            return Err(fault("is not made of two matrices".into()));
        };
        let delta = Delta {
            a,
            b,
            rank: *rank,
            widths: (*input, *output),
            scale: self.scale(name, *rank),
            is_transposed: self.is_paddle || pair.is_embedding || self.config.fan_in_fan_out,
        };
        if rank != b_rank || weight.shape != delta.shape() {
            let reason = format!(
                "is {b_shape:?} · {a_shape:?}, which does not fit {:?}",
                weight.shape
            );
            return Err(fault(reason));
        }
        Ok(Some(delta))
    }

    #[expect(clippy::cast_possible_truncation, reason = "a factor near one")]
    fn scale(&self, name: &str, rank: usize) -> f32 {
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let ends = |pattern: &str| {
            let pattern = pattern.trim_start_matches('^').trim_end_matches('$');
            module == pattern || module.ends_with(&format!(".{pattern}"))
        };
        let special = self
            .config
            .alpha_pattern
            .iter()
            .find(|(pattern, _)| ends(pattern));
        let rank = if rank == 0 {
            self.config.r.max(1)
        } else {
            rank
        } as f64;
        let alpha = special
            .map(|(_, alpha)| *alpha)
            .or(self.config.lora_alpha)
            .unwrap_or(rank);
        let divisor = if self.config.use_rslora {
            rank.sqrt()
        } else {
            rank
        };
        (alpha / divisor) as f32
    }

    /// A whole tensor of the adapter, laid out as peft has it.
    fn read(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), Error> {
        let input = Input::open(&self.source, name)?;
        let shape = input.stored.shape.clone();
        let count = shape.iter().product();
        let mut values = vec![0.0; count];
        input.read::<Single>(0..count, &mut Vec::new(), &mut values)?;
        Ok(match *shape.as_slice() {
            [rows, columns] if self.is_paddle => {
                (vec![columns, rows], transposed(&values, rows, columns))
            }
            _ => (shape, values),
        })
    }
}

/// A matrix with its columns as rows.
fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let column = |column| (0..rows).map(move |row| values[row * columns + column]);
    (0..columns).flat_map(column).collect()
}
