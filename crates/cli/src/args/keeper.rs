//! The arguments of `cairn keeper`.

use crate::units::{parse_age, parse_size};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The keeper runs in the foreground until it is interrupted; it then ends what it writes, and its exit code is 1 if
something could not be committed and is lost with its memory. Trainers of the same user find it by
CAIRN_KEEPER, or at the place where keepers listen. docs/guide/keeper.md has a unit for systemd.

Examples:
  cairn keeper --max-bytes 200G
  cairn keeper --socket /run/cairn/keeper.sock --verbose
  cairn keeper status
  cairn keeper status --json | jq '.snapshots[] | select(.stage == \"stuck\")'"
)]
pub(crate) struct Keeper {
    #[command(subcommand)]
    pub(crate) command: Option<KeeperCommand>,
    #[command(flatten)]
    pub(crate) serve: KeeperServe,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeeperCommand {
    /// Show what the keeper holds
    Status(KeeperStatus),
}

#[derive(Debug, Args)]
pub(crate) struct KeeperStatus {
    /// Where the keeper listens [default: CAIRN_KEEPER, or a folder of the user's]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct KeeperServe {
    /// Where to listen, in a folder that only this user may enter [default: CAIRN_KEEPER, or a folder of the user's]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The most memory to hand out [default: half of what is available]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_bytes: Option<u64>,
    /// The most memory for one run [default: all of it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_run_bytes: Option<u64>,
    /// How long a snapshot stays that is committed and whose trainer is gone; what could not be committed stays
    #[arg(long, value_name = "AGE", default_value = "1h", value_parser = parse_age)]
    pub(crate) forget_after: Duration,
    /// How long to wait for the other writers of a step that the keeper ends, before it is `stuck` and tried now and then
    #[arg(long, value_name = "AGE", default_value = "10min", value_parser = parse_age)]
    pub(crate) commit_timeout: Duration,
}
