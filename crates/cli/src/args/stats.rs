//! Arguments of `cairn stats`.

use crate::complete;
use cairn::checkpoint::Pattern;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "\
Mean, deviation, least and greatest are those of the finite elements; NaN and infinities are counted.

Examples:
  cairn stats runs/7b                          one line for the same tensor of all layers
  cairn stats model/ --keys '*.q_proj.weight' --each --hist
  cairn stats runs/7b:12000 --json | jq '.patterns[] | select(.nan > 0)'")]
pub(crate) struct Stats {
    /// A run, a step, or a model or checkpoint of another tool
    #[arg(add = complete::paths())]
    pub(crate) path: String,
    /// Look only at tensors whose names match; `*` is any text
    #[arg(long, value_name = "PATTERN")]
    pub(crate) keys: Vec<Pattern>,
    /// A line for every tensor
    #[arg(long)]
    pub(crate) each: bool,
    /// Draw how often which values occur
    #[arg(long, value_name = "BARS", num_args = 0..=1, require_equals = true, default_missing_value = "unicode")]
    pub(crate) hist: Option<Bars>,
    /// Threads that read and calculate [default: one for each core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
}

/// What bars are drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bars {
    Unicode,
    Ascii,
}
