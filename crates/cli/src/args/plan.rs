//! Arguments of `cairn plan`.

use super::Layout;
use cairn::sharding::Mesh;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Plan {
    /// Which file each rank would write, and how even the shares are
    Save(PlanSave),
    /// Which bytes each rank would read, and what does not fit
    Load(PlanLoad),
    /// Which bytes would go from rank to rank to change the layout in memory
    Reshard(PlanReshard),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairn plan save hf-model --mesh dp=2,tp=4 --shard '*.weight=tp'")]
pub(crate) struct PlanSave {
    /// A checkpoint or model whose tensors would be saved
    pub(crate) source: String,
    #[command(flatten)]
    pub(crate) layout: Layout,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairn plan load runs/7b --mesh tp=8 --shard '*.weight=tp'
  cairn plan load runs/7b --mesh tp=8 --rank 3
  cairn plan load runs/7b --mesh tp=8 --like hf-model     exit 1 if names, shapes or types differ")]
pub(crate) struct PlanLoad {
    /// The checkpoint or model to load
    pub(crate) source: String,
    #[command(flatten)]
    pub(crate) layout: Layout,
    /// Only this rank
    #[arg(long)]
    pub(crate) rank: Option<usize>,
    /// A checkpoint or model whose names, shapes and types are what is wanted
    #[arg(long, value_name = "OTHER")]
    pub(crate) like: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairn plan reshard hf-model --mesh tp=4 --shard '*.weight=tp' --to-mesh dp=2,tp=2 --to-shard '*.weight=tp'")]
pub(crate) struct PlanReshard {
    /// A checkpoint or model whose tensors would be moved
    pub(crate) source: String,
    #[command(flatten)]
    pub(crate) layout: Layout,
    /// The axes of the mesh to move to
    #[arg(long, value_name = "MESH")]
    pub(crate) to_mesh: Mesh,
    /// How tensors are cut there
    #[arg(long, value_name = "PATTERN=SPEC")]
    pub(crate) to_shard: Vec<String>,
}
