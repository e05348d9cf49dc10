//! From `--mesh` and `--shard` to the layout of every tensor.

use crate::args::Layout as LayoutArgs;
use crate::error::Error;
use crate::printer::Printer;
use cairn::checkpoint::{Layout, PlannedWriter, SavePlan, ShardRules, Source};
use cairn::sharding::{Mesh, TensorSpec};
use serde::Serialize;
use std::collections::BTreeMap;

/// Lays out the tensors of `source`, and warns of rules that are for none of them.
pub(crate) fn lay_out(
    source: &dyn Source,
    mesh: &Mesh,
    shard: &[String],
    printer: &Printer,
) -> Result<BTreeMap<String, TensorSpec>, Error> {
    let rules = ShardRules::parse(mesh.clone(), shard)?;
    for unused in rules.unused(&source.names()) {
        let near = unused
            .near
            .map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        printer.warn(&format!("no tensor is called `{}`{near}", unused.pattern));
    }
    Ok(rules.lay_out(source)?)
}

/// The number of ranks a layout is for.
pub(crate) fn world(mesh: &Mesh) -> usize {
    mesh.max_rank() + 1
}

/// Plans a save of `source` laid out as `args` says.
pub(crate) fn plan_save(
    source: &dyn Source,
    args: &LayoutArgs,
    printer: &Printer,
) -> Result<(BTreeMap<String, TensorSpec>, SavePlan), Error> {
    let specs = lay_out(source, &args.mesh, &args.shard, printer)?;
    let layout = Layout::new(specs.clone(), source.aliases());
    let plan = SavePlan::new(&layout, world(&args.mesh))?;
    Ok((specs, plan))
}

/// One rank's file of a planned save.
#[derive(Debug, Serialize)]
pub(crate) struct RankFile {
    pub(crate) rank: usize,
    pub(crate) pieces: usize,
    pub(crate) data_bytes: u64,
    pub(crate) len_bytes: u64,
}

/// The files of a planned save, by rank.
pub(crate) fn planned_files(plan: &SavePlan) -> Vec<RankFile> {
    let file = |(rank, writer): (usize, &PlannedWriter)| RankFile {
        rank,
        pieces: writer.items,
        data_bytes: writer.data_bytes,
        len_bytes: writer.len_bytes,
    };
    plan.writers.iter().enumerate().map(file).collect()
}
