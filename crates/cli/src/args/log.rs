//! Arguments of `cairn log`.

use crate::complete;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
The newest step comes first. Where a run went back to an older step, the steps that it left are drawn beside
those that led to the newest one.

Examples:
  cairn log runs/7b
  cairn log runs/7b --json | jq '.steps[] | select(.abandoned) | .step'")]
pub(crate) struct Log {
    /// The folder of a run
    #[arg(add = complete::paths())]
    pub(crate) run: String,
}
