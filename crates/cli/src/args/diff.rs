//! Arguments of `cairn diff`.

use crate::complete;
use cairn::checkpoint::Pattern;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0 says that both are the same, 1 that they differ.

Two elements are the same if |left - right| <= ATOL + RTOL * |right|, or if both are NaN.

Examples:
  cairn diff runs/7b:11000 runs/7b:12000
  cairn diff hf-model/ runs/7b --keys 'model.*' --rtol 1e-3
  cairn diff before.safetensors after.safetensors --json
  cairn diff runs/7b exported/ --any-dtype --atol 0.01   f32 masters against their bf16 export")]
pub(crate) struct Diff {
    /// A run, a step, or a model or checkpoint of another tool
    #[arg(add = complete::paths())]
    pub(crate) left: String,
    /// Another one, of any format and layout
    #[arg(add = complete::paths())]
    pub(crate) right: String,
    /// How far apart elements may be, as a share of the right one
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_tolerance)]
    pub(crate) rtol: f64,
    /// How far apart elements may be
    #[arg(long, value_name = "DISTANCE", default_value_t = 0.0, value_parser = parse_tolerance)]
    pub(crate) atol: f64,
    /// Compare only tensors whose names match, and no plain values; `*` is any text
    #[arg(long, value_name = "PATTERN")]
    pub(crate) keys: Vec<Pattern>,
    /// Let types differ as long as values are the same
    #[arg(long)]
    pub(crate) any_dtype: bool,
    /// Take tensors for equal, unread, if their stored checksums are
    #[arg(long)]
    pub(crate) trust_checksums: bool,
    /// List everything that differs, however much it is
    #[arg(long)]
    pub(crate) all: bool,
    /// Threads that read and compare [default: one for each core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
}

fn parse_tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(tolerance) if tolerance >= 0.0 && tolerance.is_finite() => Ok(tolerance),
        _ => Err("expected a number such as `0`, `0.01` or `1e-3`".to_string()),
    }
}
