//! What a model is like, as its `config.json` says.

mod fields;
mod read;
mod rope;
#[cfg(test)]
mod tests;

pub use cairn_kernels::rotary::Scaling;
pub use rope::Rope;

use crate::error::{Error, Problem};
use serde_json::{Map, Value, json};

/// The families of decoders that there are blocks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// `LlamaForCausalLM`.
    Llama,
    /// `Qwen2ForCausalLM`: queries, keys and values have biases.
    Qwen2,
    /// `Qwen3ForCausalLM`: queries and keys are normalised, head by head.
    Qwen3,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Llama, Self::Qwen2, Self::Qwen3];

    /// The name of its class.
    pub fn class(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
        }
    }

    /// The name of its kind of model.
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// What a decoder model is like. Fields have the names of Hugging Face's `config.json`.
///
/// ```
/// use cairn_model::ModelConfig;
///
/// let config = ModelConfig::from_json(r#"{
///     "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 172,
///     "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2
/// }"#)?;
/// assert_eq!(config.head_dim, 8);
/// assert_eq!(config.parallel_problems(4)[0].what, "2 key and value heads (`num_key_value_heads`) cannot be shared out over 4 ranks of `tp`");
/// # Ok::<(), cairn_model::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The family.
    pub architecture: Architecture,
    /// The number of tokens that there are.
    pub vocab_size: usize,
    /// The width of what flows between blocks.
    pub hidden_size: usize,
    /// The width inside the feed-forward part.
    pub intermediate_size: usize,
    /// The number of decoder layers.
    pub num_hidden_layers: usize,
    /// The number of heads of queries.
    pub num_attention_heads: usize,
    /// The number of heads of keys and values, each shared by as many heads of queries.
    pub num_key_value_heads: usize,
    /// The width of a head.
    pub head_dim: usize,
    /// The longest sequence that the model is meant for.
    pub max_position_embeddings: usize,
    /// What is added to the mean square before its root is taken.
    pub rms_norm_eps: f64,
    /// How positions turn queries and keys.
    pub rope: Rope,
    /// Whether the head's weight is the embedding's.
    pub tie_word_embeddings: bool,
    /// Whether all four projections of attention have biases. In Qwen2 those to queries, keys and values always have, and this is false.
    pub attention_bias: bool,
    /// Whether the projections of the feed-forward part have biases; only in Llama.
    pub mlp_bias: bool,
    /// The standard deviation of the first weights.
    pub initializer_range: f64,
    /// The share of the elements of each branch that is dropped before it is added, in training. Cairn's own: other tools do not know it.
    pub dropout: f64,
    /// Everything else that the file says, kept to be written again.
    pub other: Map<String, Value>,
}

impl ModelConfig {
    /// What a `config.json` says.
    ///
    /// # Errors
    /// [`Error::Config`] with everything that is missing, malformed, contradictory, or asks for what there are no blocks for.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let parsed: Result<Map<String, Value>, _> = serde_json::from_str(text);
        let result = match parsed {
            Ok(fields) => read::config(fields),
            Err(error) => Err(vec![Problem::new(format!(
                "it is not a JSON object: {error}"
            ))]),
        };
        result.map_err(|problems| Error::Config { problems })
    }

    /// A `config.json` that transformers loads.
    pub fn to_json(&self) -> String {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.into(), value);
        set("architectures", json!([self.architecture.class()]));
        set("model_type", json!(self.architecture.model_type()));
        set("vocab_size", json!(self.vocab_size));
        set("hidden_size", json!(self.hidden_size));
        set("intermediate_size", json!(self.intermediate_size));
        set("num_hidden_layers", json!(self.num_hidden_layers));
        set("num_attention_heads", json!(self.num_attention_heads));
        set("num_key_value_heads", json!(self.num_key_value_heads));
        set("head_dim", json!(self.head_dim));
        set(
            "max_position_embeddings",
            json!(self.max_position_embeddings),
        );
        set("hidden_act", json!("silu"));
        set("rms_norm_eps", json!(self.rms_norm_eps));
        set("rope_theta", json!(self.rope.theta));
        set("rope_scaling", rope::to_json(self.rope.scaling));
        set("tie_word_embeddings", json!(self.tie_word_embeddings));
        if self.architecture != Architecture::Qwen2 {
            set("attention_bias", json!(self.attention_bias));
        }
        if self.architecture == Architecture::Llama {
            set("mlp_bias", json!(self.mlp_bias));
        }
        set("initializer_range", json!(self.initializer_range));
        if self.dropout > 0.0 {
            set("dropout", json!(self.dropout));
        }
        fields.extend(self.other.clone());
        format!("{:#}\n", Value::Object(fields))
    }

    /// Why a group of `tp` ranks cannot share each block of this model; nothing if it can. The vocabulary and the feed-forward part may be cut unevenly.
    pub fn parallel_problems(&self, tp: usize) -> Vec<Problem> {
        let shared = self.num_key_value_heads;
        let heads = [
            (self.num_attention_heads, "heads (`num_attention_heads`)"),
            (shared, "key and value heads (`num_key_value_heads`)"),
        ];
        // Heads are a multiple of key and value heads.
        let sizes = (1..=shared).filter(|size| shared.is_multiple_of(*size));
        let sizes: Vec<String> = sizes.map(|size| size.to_string()).collect();
        let hint = format!("sizes of `tp` that fit this model: {}", sizes.join(", "));
        let uneven = heads.iter().filter(|(count, _)| !count.is_multiple_of(tp));
        let problems = uneven.map(|(count, name)| {
            let what = format!("{count} {name} cannot be shared out over {tp} ranks of `tp`");
            Problem::new(what).hint(&hint)
        });
        problems.collect()
    }

    /// How many parameters there are, a weight that is tied counted once.
    pub fn parameter_count(&self) -> u64 {
        let [hidden, vocab, layers] =
            [self.hidden_size, self.vocab_size, self.num_hidden_layers].map(|it| it as u64);
        let queries = (self.num_attention_heads * self.head_dim) as u64;
        let keys = (self.num_key_value_heads * self.head_dim) as u64;
        let inner = self.intermediate_size as u64;
        let biases = |used: bool, count: u64| if used { count } else { 0 };
        let attention = hidden * (2 * queries + 2 * keys)
            + biases(self.query_bias(), queries + 2 * keys)
            + biases(self.attention_bias, hidden)
            + biases(self.query_norm(), 2 * self.head_dim as u64);
        let feed_forward = 3 * hidden * inner + biases(self.mlp_bias, 2 * inner + hidden);
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        layers * (attention + feed_forward + 2 * hidden) + hidden + tables * vocab * hidden
    }

    /// Whether the projections to queries, keys and values have biases.
    pub(crate) fn query_bias(&self) -> bool {
        self.attention_bias || self.architecture == Architecture::Qwen2
    }

    /// Whether queries and keys are normalised.
    pub(crate) fn query_norm(&self) -> bool {
        self.architecture == Architecture::Qwen3
    }
}
