//! Arguments of `cairn convert`.

use super::Weights;
use crate::units::parse_size;
use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A Hugging Face model folder
    Hf,
    /// One safetensors file
    Safetensors,
    /// A folder that `torch.distributed.checkpoint` loads
    Dcp,
    /// One file that `torch.load` opens, with `weights_only`
    Torch,
    /// One file that `paddle.load` opens
    Paddle,
    /// The parameters of a Paddle program that lies beside the source
    Pdiparams,
    /// A step of a run, for one rank; `cairn reshard` writes it for many
    Cairn,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is written gathers in `.cairn-convert` beside its place and is moved there when all of it is on disk, so that a
conversion that was cut short leaves nothing that looks finished. `--resume` goes on with it, and `--replace` leaves
the old model alone until the new one is whole.

Examples:
  cairn convert runs/7b hf-model --to hf
  cairn convert runs/7b hf-model --to hf --keys 'model.*' --keys 'lm_head.*' --shard-size 2GB
  cairn convert runs/7b hf-model --to hf --drop '*.exp_avg*' --plan
  cairn convert runs/7b hf-model --to hf --ema 0.9999
  cairn convert runs/7b for-torch --to dcp
  cairn convert hf-model model.safetensors --to safetensors
  cairn convert hf-model runs/new --to cairn --resume")]
pub(crate) struct Convert {
    /// A run, a step, or a model or checkpoint of another tool
    pub(crate) source: String,
    /// The folder or file to write; of a step, the folder of its run
    pub(crate) target: String,
    /// The format to write
    #[arg(long, value_enum)]
    pub(crate) to: Format,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// The step to write with `--to cairn`; the source's, or 0 for a model, if not given
    #[arg(long)]
    pub(crate) step: Option<u64>,
    /// The most data in one file of a folder; GB counts by 1000, G and GiB by 1024
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = parse_size)]
    pub(crate) shard_size: u64,
    /// The most memory for data in flight
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) memory: u64,
    /// Do not compare what is read with its checksums
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Go on with a conversion that was cut short, from the same source with the same options
    #[arg(long)]
    pub(crate) resume: bool,
    /// Put the result in the place of the model or step that is there
    #[arg(long)]
    pub(crate) replace: bool,
    /// Show what would be read and written, and write nothing
    #[arg(long, visible_alias = "dry-run")]
    pub(crate) plan: bool,
}
