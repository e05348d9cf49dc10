//! Arguments of every verb that writes tensors of one place to another: which ones.

use super::Transform;
use cairn::checkpoint::Pattern;
use cairn::tensor::DType;
use clap::Args;

/// Which weights are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Weights")]
pub(crate) struct Weights {
    /// Write this stored average in place of the weights
    #[arg(long, value_name = "LABEL")]
    pub(crate) ema: Option<String>,
    /// Only tensors whose names match; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) keys: Vec<Pattern>,
    /// No tensors whose names match; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) drop: Vec<Pattern>,
    /// Floats in this type: f64, f32, f16 or bf16. Integers, and floats of less than 16 bits, stay as they are
    #[arg(long, value_parser = parse_float)]
    pub(crate) dtype: Option<DType>,
    #[command(flatten)]
    pub(crate) transform: Transform,
}

fn parse_float(text: &str) -> Result<DType, String> {
    let known = [DType::F64, DType::F32, DType::F16, DType::Bf16];
    let dtype = text.parse().ok().filter(|dtype| known.contains(dtype));
    dtype.ok_or_else(|| "expected f64, f32, f16 or bf16".into())
}
