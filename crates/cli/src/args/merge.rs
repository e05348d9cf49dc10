//! Arguments of `cairn merge`.

use crate::units::parse_size;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
CONFIG is a mergekit YAML file, as it is, or a MergeConfig of Paddle in JSON.
Models are whatever Cairn opens; `path+adapter` adds a LoRA adapter.
The result gathers in `.cairn-convert` in its folder, and what is there stays as it was until all of it is on disk.

Examples:
  cairn merge merge.yml merged
  cairn merge merge.yml merged --plan            what it would read, write and take
  cairn merge merge.yml merged --resume          go on where a merge was cut short
  cairn merge merge.yml merged --shard-size 2GB --seed 7")]
pub(crate) struct Merge {
    /// The config: which models, which method, which parameters
    pub(crate) config: String,
    /// The folder to write; a Paddle config may name it itself
    pub(crate) target: Option<String>,
    /// The most data in one file; GB counts by 1000, G and GiB by 1024
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = parse_size)]
    pub(crate) shard_size: u64,
    /// Decides the random numbers of the methods that draw some
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Threads; the result does not depend on them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Keep the files that an earlier try of this merge finished, and write the others
    #[arg(long, conflicts_with = "replace")]
    pub(crate) resume: bool,
    /// Put the result in the place of what is there, once all of it is on disk
    #[arg(long)]
    pub(crate) replace: bool,
    /// Show what would be done, and write nothing
    #[arg(long, visible_alias = "plan")]
    pub(crate) dry_run: bool,
}
