//! Arguments of the verbs that write or delete.

use super::Weights;
use crate::complete;
use crate::units::parse_size;
use cairn::sharding::Mesh;
use clap::Args;

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
A step that was saved as a delta refers to files of earlier steps, and one may be compressed. Afterwards it stands alone, its files
are plain safetensors files, and the earlier steps can be deleted.

Examples:
  cairn compact runs/7b:12000
  cairn compact runs/7b --dry-run")]
pub(crate) struct Compact {
    /// A step, or a run whose newest whole step is meant
    #[arg(add = complete::paths())]
    pub(crate) path: String,
    /// Show what would be written, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
