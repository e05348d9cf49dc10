//! Arguments of the verbs that write or delete.

use super::Weights;
use crate::units::{parse_age, parse_size};
use cairn::sharding::Mesh;
use clap::Args;
use std::time::Duration;

/// A target layout: a mesh, and how names are cut along it.
#[derive(Debug, Args)]
pub(crate) struct Layout {
    /// The axes of the target mesh, outermost first: dp=2,tp=4
    #[arg(long)]
    pub(crate) mesh: Mesh,
    /// How tensors are cut: names with `*` and `?`, then for each dim an axis, `dp+tp`, or `-` for whole; the first rule that
    /// matches a name decides, and what none matches is replicated
    #[arg(long, value_name = "PATTERN=SPEC")]
    pub(crate) shard: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairn reshard runs/7b runs/7b-tp4 --mesh tp=4 --shard '*.q_proj.weight=tp,-' --shard '*.o_proj.weight=-,tp'
  cairn reshard hf-model runs/new --mesh dp=2,tp=4 --shard '*=dp+tp'
  cairn reshard runs/7b/step-00012000 runs/7b --mesh dp=8 --step 12001 --plan")]
pub(crate) struct Reshard {
    /// A run, a step, or a model or checkpoint of another tool
    pub(crate) source: String,
    /// The folder of a run, which gets a new step
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) layout: Layout,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// The step to write; the source's, or 0 for a model, if not given
    #[arg(long)]
    pub(crate) step: Option<u64>,
    /// The most memory for data in flight
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub(crate) memory: u64,
    /// Go on with a rewrite that was cut short, from the same source with the same options
    #[arg(long)]
    pub(crate) resume: bool,
    /// Put the result in the place of a step that is committed
    #[arg(long)]
    pub(crate) replace: bool,
    /// Show what would be written, and write nothing
    #[arg(long = "plan", visible_alias = "dry-run")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A step stays if any rule keeps it; the newest whole step always stays, and damaged steps are never deleted.

Examples:
  cairn prune runs/7b --keep-last 3 --dry-run
  cairn prune runs/7b --keep-last 3 --keep-every 1000 --keep-tag eval --yes
  cairn prune runs/7b --incomplete 2d         only what crashed saves left behind")]
#[command(group = clap::ArgGroup::new("rules").required(true).multiple(true)
    .args(["keep_last", "keep_every", "keep_tag", "incomplete"]))]
pub(crate) struct Prune {
    /// The folder of a run
    pub(crate) run: String,
    /// Keep the newest N steps
    #[arg(long, value_name = "N")]
    pub(crate) keep_last: Option<usize>,
    /// Keep steps that are a multiple of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_every: Option<u64>,
    /// Keep steps with this tag; may be given several times
    #[arg(long, value_name = "TAG")]
    pub(crate) keep_tag: Vec<String>,
    /// Delete attempts that were never committed and are older than AGE
    #[arg(long, value_name = "AGE", num_args = 0..=1, default_missing_value = "24h", value_parser = parse_age)]
    pub(crate) incomplete: Option<Duration>,
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}
