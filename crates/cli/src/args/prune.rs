//! Arguments of the verbs that say which steps stay.

use crate::complete;
use crate::units::{parse_age, parse_percent};
use cairn::checkpoint::retention::{Abandoned, Best, Within};
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
A step stays if any rule keeps it. The newest whole step and steps with a tag always stay, and damaged steps are never deleted.

Examples:
  cairn prune runs/7b --keep-last 3 --dry-run
  cairn prune runs/7b --keep-last 3 --keep-every 1000 --keep-best min:eval_loss:2 --yes
  cairn prune runs/7b --keep-within 24h --keep-within 30d/1d --grace 15min --yes
  cairn prune runs/7b --incomplete 2d         only what crashed saves left behind")]
#[command(group = clap::ArgGroup::new("rules").required(true).multiple(true)
    .args(["keep_last", "keep_every", "keep_best", "keep_within", "incomplete"]))]
pub(crate) struct Prune {
    /// The folder of a run
    #[arg(add = complete::paths())]
    pub(crate) run: String,
    /// Keep the newest N steps of those that led to the newest one
    #[arg(long, value_name = "N")]
    pub(crate) keep_last: Option<usize>,
    /// Keep steps that are a multiple of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_every: Option<u64>,
    /// Keep the best steps by a metric that was saved with them: min:eval_loss:3; may be given several times
    #[arg(long, value_name = "RULE", value_parser = best)]
    pub(crate) keep_best: Vec<Best>,
    /// Keep the steps of a time before now: 24h for all of them, 30d/1d for one of each day; may be given several times
    #[arg(long, value_name = "RULE", value_parser = within)]
    pub(crate) keep_within: Vec<Within>,
    /// Where the run went back, it abandoned steps: keep the `newest` of each such line (without this option, too), `all`, or `none`
    #[arg(long, value_name = "WHICH", value_parser = abandoned)]
    pub(crate) keep_abandoned: Option<Abandoned>,
    /// Leave the files of deleted steps for AGE, for those who have them open; a later `prune` takes them away
    #[arg(long, value_name = "AGE", default_value = "0s", value_parser = parse_age)]
    pub(crate) grace: Duration,
    /// Before anything is deleted, read this share of the newest step; if it is damaged, it does not count
    #[arg(long, value_name = "SHARE", num_args = 0..=1, require_equals = true,
        default_missing_value = "100%", value_parser = parse_percent)]
    pub(crate) read_data: Option<f64>,
    /// Delete attempts that were never committed, and uploads that were never finished, older than AGE
    #[arg(long, value_name = "AGE", num_args = 0..=1, default_missing_value = "24h", value_parser = parse_age)]
    pub(crate) incomplete: Option<Duration>,
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairn tag runs/7b:12000 released            step 12000 is never pruned
  cairn tag runs/7b/step-00012000             its tags
  cairn tag runs/7b:12000 released --remove")]
pub(crate) struct Tag {
    /// A step, or a run for its newest
    #[arg(add = complete::paths())]
    pub(crate) step: String,
    /// The tag: letters, digits, `.`, `-` and `_`; without it, the tags of the step are listed
    pub(crate) name: Option<String>,
    /// Take the tag off
    #[arg(long, requires = "name")]
    pub(crate) remove: bool,
}

fn best(text: &str) -> Result<Best, String> {
    text.parse().map_err(rule)
}

fn within(text: &str) -> Result<Within, String> {
    text.parse().map_err(rule)
}

fn abandoned(text: &str) -> Result<Abandoned, String> {
    text.parse().map_err(rule)
}

fn rule(error: cairn::checkpoint::Error) -> String {
    error.hint().unwrap_or_else(|| error.to_string())
}
