//! Arguments of `cairn ema`.

use super::Format;
use crate::units::parse_size;
use cairn::checkpoint::Pattern;
use clap::{ArgGroup, Args, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "\
A SOURCE is RUN (all its steps), RUN:1000, RUN:1000..12000 (all steps from 1000 to 12000), RUN:1000..12000:1000 (every
thousandth of them, none missing), or the PATH of a step or of a model in another format. Sources are averaged in the order given.

Examples:
  cairn ema runs/7b:1000..12000:1000 averaged --decay 0.99
  cairn ema runs/7b averaged --uniform --names 'model.*'
  cairn ema hf-a hf-b hf-c averaged --uniform
  cairn ema runs/7b averaged --post-hoc 0.08        from the power averages that the steps store")]
#[command(group = ArgGroup::new("average").required(true).args(["decay", "power", "uniform", "post_hoc"]))]
pub(crate) struct Ema {
    /// The steps to average, oldest first
    #[arg(required = true, num_args = 1.., value_name = "SOURCE")]
    pub(crate) sources: Vec<String>,
    /// The folder to write
    pub(crate) target: String,
    /// An exponential average: each step keeps D of the average
    #[arg(long, value_name = "D")]
    pub(crate) decay: Option<f64>,
    /// A power average whose width is the share SIGMA of all steps
    #[arg(long, value_name = "SIGMA")]
    pub(crate) power: Option<f64>,
    /// The mean of all steps
    #[arg(long)]
    pub(crate) uniform: bool,
    /// The power average of this width, made from those that the steps store
    #[arg(long, value_name = "SIGMA")]
    pub(crate) post_hoc: Option<f64>,
    /// What an exponential average begins with
    #[arg(long, value_enum, default_value = "copy", conflicts_with_all = ["power", "uniform", "post_hoc"])]
    pub(crate) start: EmaStart,
    /// Only tensors whose names match are averaged and written; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) names: Vec<Pattern>,
    /// The format to write
    #[arg(long, value_enum, default_value = "hf")]
    pub(crate) to: Format,
    /// The step to write with `--to cairn`; that of the last source, or 0 for a model, if not given
    #[arg(long)]
    pub(crate) step: Option<u64>,
    /// The most data in one file of a model; GB counts by 1000, G and GiB by 1024
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = parse_size)]
    pub(crate) shard_size: u64,
    /// The most memory for data in flight
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub(crate) memory: u64,
    /// Put the result in the place of the model or step that is there
    #[arg(long)]
    pub(crate) replace: bool,
    /// Show what would be written, and write nothing
    #[arg(long = "plan", visible_alias = "dry-run")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EmaStart {
    /// The weights of the first step
    Copy,
    /// Zeros, and the result is corrected for them
    Zero,
}
