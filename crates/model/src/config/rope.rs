//! How positions turn queries and keys.

use cairn_kernels::rotary::Scaling;
use serde_json::{Value, json};

/// How positions turn queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// The base of the wavelengths.
    pub theta: f64,
    /// How turns are slowed down for longer sequences.
    pub scaling: Scaling,
}

/// A scaling as `rope_scaling` of a `config.json`.
pub(super) fn to_json(scaling: Scaling) -> Value {
    match scaling {
        Scaling::None => Value::Null,
        Scaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        Scaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_length,
        } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_frequency_factor,
            "high_freq_factor": high_frequency_factor,
            "original_max_position_embeddings": whole(original_length),
        }),
    }
}

/// A number as a whole one, as which it was read.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths are whole and fit"
)]
fn whole(number: f64) -> u64 {
    number as u64
}
