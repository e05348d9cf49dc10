//! Arguments of `cairn demo`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
A small model is trained by eight ranks, killed without warning, and goes on from its checkpoint on another mesh; its losses are compared with those of
a run that nobody disturbed. Then the state of a larger model is saved and loaded, and compared bit by bit.

Examples:
  cairn demo
  cairn demo --keep                       and look at the run with the other verbs
  cairn demo --gb 8 --dir /mnt/fast")]
pub(crate) struct Demo {
    /// Where to work; a temporary folder if not given
    #[arg(long)]
    pub(crate) dir: Option<String>,
    /// How many steps to train
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(20..))]
    pub(crate) steps: u64,
    /// The size of the state of the larger model, in GiB; 0 leaves it out
    #[arg(long, default_value_t = 0.5)]
    pub(crate) gb: f64,
    /// Leave the files there
    #[arg(long)]
    pub(crate) keep: bool,
}
