//! Arguments of `cairn convert`.

use super::Weights;
use crate::units::parse_size;
use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A Hugging Face model folder
    Hf,
    /// A folder that `torch.distributed.checkpoint` loads
    Dcp,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairn convert runs/7b hf-model --to hf
  cairn convert runs/7b hf-model --to hf --keys 'model.*' --keys 'lm_head.*' --shard-size 2GB
  cairn convert runs/7b hf-model --to hf --drop '*.exp_avg*' --dry-run
  cairn convert runs/7b hf-model --to hf --ema 0.9999
  cairn convert runs/7b for-torch --to dcp")]
pub(crate) struct Convert {
    /// A run, a step, or a model or checkpoint of another tool
    pub(crate) source: String,
    /// The folder to write
    pub(crate) target: String,
    /// The format to write
    #[arg(long, value_enum)]
    pub(crate) to: Format,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// The most data in one file; GB counts by 1000, G and GiB by 1024
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = parse_size)]
    pub(crate) shard_size: u64,
    /// The most memory for data in flight
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub(crate) memory: u64,
    /// Delete the model that is there and write this one
    #[arg(long)]
    pub(crate) replace: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
