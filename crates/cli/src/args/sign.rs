//! Arguments of the verbs about signatures.

use crate::complete;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Writes the secret key to FILE, which only its owner may read, and the public one to FILE.pub.

Examples:
  cairn keygen ~/.config/cairn/release")]
pub(crate) struct Keygen {
    /// The file of the secret key
    pub(crate) file: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
All of the step is read, and compared with its checksums: damage is not signed.

Examples:
  cairn sign runs/7b:12000 --key ~/.config/cairn/release
  cairn verify runs/7b:12000 --key release.pub
  CAIRN_REQUIRE_KEY=release.pub cairn convert runs/7b:12000 out --to hf")]
pub(crate) struct Sign {
    /// A step, or a run for its newest
    #[arg(add = complete::paths())]
    pub(crate) step: String,
    /// The file of the secret key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: String,
}
