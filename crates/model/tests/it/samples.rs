//! Small models with everything that can be different about one, and batches for them.

use cairn_kernels::Real;
use cairn_model::{Batch, IGNORED, ModelConfig};

/// A config of two layers; `extra` replaces and adds fields.
pub(crate) fn config(class: &str, extra: &str) -> ModelConfig {
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&format!(
        r#"{{"architectures": ["{class}"], "vocab_size": 13, "hidden_size": 8, "intermediate_size": 11, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "rms_norm_eps": 1e-5, "rope_theta": 100.0}}"#
    ))
    .unwrap();
    let extra: serde_json::Map<_, _> = serde_json::from_str(extra).unwrap();
    fields.extend(extra);
    ModelConfig::from_json(&serde_json::Value::Object(fields).to_string()).unwrap()
}

/// Models that differ in what their blocks do; heads and groups fit 2 ranks, or 3 where the name says so.
pub(crate) fn models() -> Vec<(&'static str, ModelConfig)> {
    vec![
        ("llama", config("LlamaForCausalLM", "{}")),
        (
            "llama with biases",
            config(
                "LlamaForCausalLM",
                r#"{"attention_bias": true, "mlp_bias": true, "num_key_value_heads": 4}"#,
            ),
        ),
        (
            "qwen2, tied",
            config("Qwen2ForCausalLM", r#"{"tie_word_embeddings": true}"#),
        ),
        (
            "qwen3 with dropout",
            config("Qwen3ForCausalLM", r#"{"dropout": 0.3}"#),
        ),
    ]
}

/// The same models with heads for 3 ranks.
pub(crate) fn models_of_three() -> Vec<(&'static str, ModelConfig)> {
    let with_heads = |(name, config): (&'static str, ModelConfig)| {
        let config = ModelConfig {
            num_attention_heads: 6,
            num_key_value_heads: 3,
            ..config
        };
        (name, config)
    };
    models().into_iter().map(with_heads).collect()
}

/// Two sequences of five tokens, the second of two documents; some targets do not count.
pub(crate) fn batch(vocab_size: usize) -> Batch {
    Batch {
        sequences: 2,
        length: 5,
        tokens: numbers(10, vocab_size, 3),
        targets: vec![2, 5, 0, 12, 7, IGNORED, 1, 3, IGNORED, 11],
        positions: vec![0, 1, 2, 3, 4, 0, 1, 2, 0, 1],
        documents: vec![0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
        samples: vec![40, 7],
        ..Batch::default()
    }
}

/// One sequence of one token.
pub(crate) fn one_token() -> Batch {
    Batch {
        sequences: 1,
        length: 1,
        tokens: vec![4],
        targets: vec![9],
        positions: vec![0],
        documents: vec![0],
        samples: vec![1],
        ..Batch::default()
    }
}

fn numbers(count: usize, below: usize, seed: u32) -> Vec<u32> {
    let below = u32::try_from(below).unwrap();
    let steps = (0..u32::try_from(count).unwrap()).map(|place| (place * 7 + seed) % below);
    steps.collect()
}

/// Numbers that look random, about as large as `scale`.
pub(crate) fn values<R: Real>(count: usize, seed: u64, scale: f64) -> Vec<R> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = f64::from(u32::try_from(state >> 32).unwrap()) / f64::from(u32::MAX);
        R::from_f64((unit * 2.0 - 1.0) * scale)
    };
    (0..count).map(next).collect()
}
