//! Reading a `config.json`: every problem is found before one is told.

use super::fields::{Fields, MAX_SIZE};
use super::{Architecture, ModelConfig, Rope, Scaling};
use crate::error::Problem;
use serde_json::{Map, Value};

/// The most layers that a model may have.
const MAX_LAYERS: u64 = 1 << 14;

/// The config that these fields describe, or all that is wrong with them.
pub(super) fn config(fields: Map<String, Value>) -> Result<ModelConfig, Vec<Problem>> {
    let mut fields = Fields::new(fields);
    let architecture = fields.architecture();
    fields.refuse_what_has_no_blocks();
    let heads = fields.size("num_attention_heads", None);
    let hidden_size = fields.size("hidden_size", None);
    let head_dim = match architecture {
        Architecture::Qwen3 => 128,
        _ => fields.width_of_heads(hidden_size, heads),
    };
    let config = ModelConfig {
        architecture,
        vocab_size: fields.size("vocab_size", None),
        hidden_size,
        intermediate_size: fields.size("intermediate_size", None),
        num_hidden_layers: fields.count("num_hidden_layers", None, 0, MAX_LAYERS),
        num_attention_heads: heads,
        num_key_value_heads: fields.size("num_key_value_heads", Some(heads)),
        head_dim: fields.size("head_dim", Some(head_dim)),
        max_position_embeddings: fields.count(
            "max_position_embeddings",
            Some(2048),
            1,
            u64::from(u32::MAX),
        ),
        rms_norm_eps: fields.number("rms_norm_eps", 1e-6, 0.0, 1.0),
        rope: fields.rope(),
        tie_word_embeddings: fields.flag("tie_word_embeddings"),
        attention_bias: architecture != Architecture::Qwen2 && fields.flag("attention_bias"),
        mlp_bias: architecture == Architecture::Llama && fields.flag("mlp_bias"),
        initializer_range: fields.number("initializer_range", 0.02, 0.0, f64::MAX),
        dropout: fields.number("dropout", 0.0, 0.0, 0.999),
        other: Map::new(),
    };
    fields.heads_fit(&config);
    match fields.problems.is_empty() {
        true => Ok(ModelConfig {
            other: fields.fields,
            ..config
        }),
        false => Err(fields.problems),
    }
}

impl Fields {
    fn architecture(&mut self) -> Architecture {
        let class = self.take("architectures");
        let model_type = self.take("model_type");
        let class = class.as_ref().and_then(|value| value.get(0)?.as_str());
        let model_type = model_type.as_ref().and_then(Value::as_str);
        let found = Architecture::ALL.into_iter().find(|known| match class {
            Some(class) => class == known.class(),
            None => model_type == Some(known.model_type()),
        });
        found.unwrap_or_else(|| {
            let problem = match class.or(model_type) {
                Some(name) => {
                    Problem::new(format!("there are no blocks for the architecture `{name}`"))
                }
                None => Problem::new("`architectures` is missing"),
            };
            let names = Architecture::ALL
                .map(|known| format!("`{}`", known.class()))
                .join(", ");
            self.problem(problem.hint(format!("architectures are {names}")));
            Architecture::Llama
        })
    }

    /// What a head's width is when nothing says it.
    fn width_of_heads(&mut self, hidden_size: usize, heads: usize) -> usize {
        let said = self
            .fields
            .get("head_dim")
            .is_some_and(|value| !value.is_null());
        // A width that is missing counts as one, and is told already.
        if !said && hidden_size > 1 && !hidden_size.is_multiple_of(heads) {
            self.problem(
                Problem::new(format!("a width (`hidden_size`) of {hidden_size} is not a multiple of {heads} heads (`num_attention_heads`)"))
                    .hint("give `head_dim`, or another `hidden_size`"),
            );
        }
        hidden_size.div_ceil(heads)
    }

    fn heads_fit(&mut self, config: &ModelConfig) {
        let (heads, shared) = (config.num_attention_heads, config.num_key_value_heads);
        if !heads.is_multiple_of(shared) {
            self.problem(
                Problem::new(format!(
                    "{heads} heads (`num_attention_heads`) cannot share {shared} key and value heads (`num_key_value_heads`) evenly"
                ))
                .hint("make the first a multiple of the second"),
            );
        }
        let widths = heads as u64 * config.head_dim as u64;
        if widths > MAX_SIZE {
            self.problem(Problem::new(format!(
                "{heads} heads of width {} (`head_dim`) are {widths} wide, more than {MAX_SIZE}",
                config.head_dim
            )));
        }
        // A width that is missing counts as one, and is told already.
        let told = |problem: &Problem| problem.what.contains("`hidden_size`");
        let is_missing = config.hidden_size == 1 && self.problems.iter().any(told);
        if !config.head_dim.is_multiple_of(2) && !is_missing {
            self.problem(
                Problem::new(format!(
                    "`head_dim` is {}, but rotary embeddings turn pairs",
                    config.head_dim
                ))
                .hint("make it even"),
            );
        }
    }

    fn rope(&mut self) -> Rope {
        let theta = self.number("rope_theta", 10_000.0, 1.0, f64::MAX);
        let scaling = self.take("rope_scaling");
        let (name, value) = match self.take("rope_parameters") {
            Some(value) => ("rope_parameters", Some(value)),
            None => ("rope_scaling", scaling),
        };
        let fields = match value {
            None => Map::new(),
            Some(Value::Object(fields)) => fields,
            Some(value) => {
                self.problem(Problem::new(format!("`{name}` is {value}, not an object")));
                Map::new()
            }
        };
        let mut inner = Fields::new(fields);
        let theta = inner.number("rope_theta", theta, 1.0, f64::MAX);
        let scaling = inner.scaling();
        let problems = inner.problems.into_iter().map(|problem| Problem {
            what: format!("in `{name}`: {}", problem.what),
            ..problem
        });
        self.problems.extend(problems);
        Rope { theta, scaling }
    }

    /// Reads the fields of `rope_scaling`.
    fn scaling(&mut self) -> Scaling {
        let kind = self.take("rope_type").or(self.take("type"));
        match kind.as_ref().map_or(Some("default"), Value::as_str) {
            Some("default") => Scaling::None,
            Some("linear") => Scaling::Linear {
                factor: self.positive("factor"),
            },
            Some("llama3") => self.llama3(),
            _ => {
                let kind = kind.unwrap_or_default();
                self.problem(
                    Problem::new(format!(
                        "there is no scaling of rotary embeddings of type {kind}"
                    ))
                    .hint("types of scaling are `default`, `linear` and `llama3`"),
                );
                Scaling::None
            }
        }
    }

    fn llama3(&mut self) -> Scaling {
        let name = "original_max_position_embeddings";
        let length = self.count(name, None, 1, u64::from(u32::MAX));
        let [factor, low, high] =
            ["factor", "low_freq_factor", "high_freq_factor"].map(|name| self.positive(name));
        if high <= low && self.problems.is_empty() {
            self.problem(Problem::new(format!(
                "`high_freq_factor` of {high} is not greater than `low_freq_factor` of {low}"
            )));
        }
        Scaling::Llama3 {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_length: length as f64,
        }
    }

    /// Looks for settings that the blocks would have to know and do not.
    fn refuse_what_has_no_blocks(&mut self) {
        let activation = self.take("hidden_act");
        if activation.as_ref().is_some_and(|value| value != "silu") {
            let value = activation.unwrap_or_default();
            self.problem(Problem::new(format!(
                "`hidden_act` is {value}: there are only blocks with `silu`"
            )));
        }
        let get = |name: &str| self.fields.get(name).filter(|value| !value.is_null());
        let sliding = |value: &Value| {
            value
                .as_array()
                .is_some_and(|types| types.iter().any(|it| it != "full_attention"))
        };
        let sliding = get("use_sliding_window").is_some_and(|value| value != false)
            || get("layer_types").is_some_and(sliding);
        let dropout = get("attention_dropout").is_some_and(|value| value.as_f64() != Some(0.0));
        let partial = get("partial_rotary_factor").is_some_and(|value| value.as_f64() != Some(1.0));
        let quantized = get("quantization_config").is_some();
        let found = [
            (
                sliding,
                "layers with a sliding window: every layer here sees the whole sequence",
                "set `use_sliding_window` to false, if sequences are no longer than the window",
            ),
            (
                dropout,
                "`attention_dropout`: attention here is computed without its probabilities being kept",
                "set it to 0; `dropout` drops elements of the branches instead",
            ),
            (
                partial,
                "`partial_rotary_factor`: rotary embeddings here turn whole heads",
                "choose another model",
            ),
            (
                quantized,
                "quantized weights (`quantization_config`)",
                "start from weights that are not quantized",
            ),
        ];
        for (_, what, hint) in found.iter().filter(|(found, ..)| *found) {
            self.problem(Problem::new(format!("the config asks for {what}")).hint(*hint));
        }
    }
}
