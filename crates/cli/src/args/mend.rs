//! Arguments of the verbs that look for damage and mend it.

use crate::complete;
use crate::units::{parse_age, parse_size};
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
Where a pass stands is kept in the run, so that it can be cut short at any time.

Examples:
  cairn scrub runs/7b --rate 100M             pass after pass, a day apart, until it is stopped
  cairn scrub runs/7b --once --json           one pass; exit 3 if anything is damaged
  cairn scrub runs/7b --for 1h                an hour of it, from where the last one ended: for a timer")]
pub(crate) struct Scrub {
    /// The folder of a run
    #[arg(add = complete::paths())]
    pub(crate) run: String,
    /// Read at most this much a second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) rate: Option<u64>,
    /// End when the pass is over
    #[arg(long)]
    pub(crate) once: bool,
    /// End after AGE, wherever the pass is then
    #[arg(long = "for", value_name = "AGE", value_parser = parse_age)]
    pub(crate) limit: Option<Duration>,
    /// The time from one pass to the next
    #[arg(long, value_name = "AGE", default_value = "24h", value_parser = parse_age)]
    pub(crate) pause: Duration,
    /// Begin a new pass, even if the last one was cut short
    #[arg(long)]
    pub(crate) restart: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Blocks that are whole stay; others are taken from the copy, if they are whole there. A file is replaced in one move.

Examples:
  cairn repair runs/7b:12000 --from backup/7b --dry-run
  cairn repair runs/7b/step-00012000 --from /mnt/other/7b")]
pub(crate) struct Repair {
    /// The step to mend
    #[arg(add = complete::paths())]
    pub(crate) step: String,
    /// A copy of the run or of the step
    #[arg(long, value_name = "PATH", add = complete::paths())]
    pub(crate) from: String,
    /// Read and compare everything, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
