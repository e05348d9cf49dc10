//! `cairn plan load`: which bytes each rank would read, and what does not fit.

use super::MAX_RANK_ROWS;
use crate::args::PlanLoad;
use crate::commands::layout::lay_out;
use crate::error::{Error, Exit};
use crate::open::open;
use crate::printer::Printer;
use crate::table::{Paint, Style, Table};
use crate::units::{plural, size};
use cairn::checkpoint::{
    KeyProblems, LoadCost, LoadPlan, MAX_LOAD_BUFFER_BYTES, Source, Strictness, Wanted,
};
use cairn::sharding::TensorSpec;
use serde::Serialize;
use std::collections::BTreeMap;

/// Planning opens files; more ranks than this are not planned unless one is named.
const MAX_PLANNED_RANKS: usize = 64;

#[derive(Debug, Serialize)]
struct Report {
    source: String,
    mesh: String,
    tensors: usize,
    ranks: Vec<Rank>,
    /// Ranks of the mesh that were not planned.
    more_ranks: usize,
    missing: Vec<Missing>,
    unexpected: Vec<String>,
    mismatched: Vec<Mismatched>,
}

#[derive(Debug, Serialize)]
struct Rank {
    rank: usize,
    wanted_bytes: u64,
    read_bytes: u64,
    over_read: f64,
    files: usize,
    reads: usize,
    memory_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Missing {
    name: String,
    near: Option<String>,
}

#[derive(Debug, Serialize)]
struct Mismatched {
    name: String,
    wanted: String,
    stored: String,
}

pub(crate) fn run(args: &PlanLoad, printer: &Printer) -> Result<Exit, Error> {
    let opened = open(&args.source, printer)?;
    let like = args
        .like
        .as_ref()
        .map(|path| open(path, printer))
        .transpose()?;
    let wanted = like.as_ref().unwrap_or(&opened).source();
    let mut specs = lay_out(wanted, &args.layout.mesh, &args.layout.shard, printer)?;
    // Whoever wants a tensor may ask for it by its other name.
    for (alias, name) in wanted.aliases() {
        if let Some(spec) = specs.get(&name).cloned() {
            specs.insert(alias, spec);
        }
    }
    let chosen = chosen_ranks(args)?;
    let planned = chosen.iter().take(MAX_PLANNED_RANKS);
    let mut ranks = Vec::new();
    let mut problems = KeyProblems::default();
    for &rank in planned {
        let plan = plan_rank(opened.source(), &specs, rank)?;
        ranks.push(Rank::new(rank, plan.cost()));
        problems = plan.problems().clone();
    }
    let report = Report {
        source: args.source.clone(),
        mesh: args.layout.mesh.to_string(),
        tensors: specs.len(),
        more_ranks: chosen.len() - ranks.len(),
        ranks,
        missing: problems.missing.iter().map(Missing::from).collect(),
        mismatched: problems.mismatched.iter().map(Mismatched::from).collect(),
        unexpected: problems.unexpected.clone(),
    };
    printer.report(&report, || report.text(&problems, printer.paint()))?;
    Ok(match problems.is_empty() {
        true => Exit::Done,
        false => Exit::Differs,
    })
}

fn chosen_ranks(args: &PlanLoad) -> Result<Vec<usize>, Error> {
    let mesh = &args.layout.mesh;
    match args.rank {
        None => Ok(mesh.ranks().collect()),
        Some(rank) if mesh.contains(rank) => Ok(vec![rank]),
        Some(rank) => Err(Error::NoSuchRank {
            rank,
            mesh: mesh.to_string(),
            max: mesh.max_rank(),
        }),
    }
}

/// Every name is part of the plan, so that a rank that holds little of it still sees all that does not fit.
fn plan_rank(
    source: &dyn Source,
    specs: &BTreeMap<String, TensorSpec>,
    rank: usize,
) -> Result<LoadPlan, Error> {
    let wanted: Vec<Wanted> = specs
        .iter()
        .map(|(name, spec)| Wanted::new(name, spec, rank))
        .collect();
    Ok(LoadPlan::new(source, &wanted, &Strictness::LENIENT)?)
}

impl Report {
    fn text(&self, problems: &KeyProblems, paint: Paint) -> String {
        let mut facts = Table::facts();
        facts.fact("mesh", self.mesh.as_str());
        facts.fact("tensors", self.tensors.to_string());
        let mut table = Table::new(&[
            " RANK",
            " WANTED",
            " READ",
            " OVER-READ",
            " FILES",
            " READS",
            " MEMORY",
        ]);
        for rank in self.ranks.iter().take(MAX_RANK_ROWS) {
            table.row(vec![
                rank.rank.to_string().into(),
                size(rank.wanted_bytes).into(),
                size(rank.read_bytes).into(),
                format!("{:.2}", rank.over_read).into(),
                rank.files.to_string().into(),
                rank.reads.to_string().into(),
                size(rank.memory_bytes).into(),
            ]);
        }
        let mut text = format!("{}\n{}", facts.render(paint), table.render(paint));
        let hidden = self.ranks.len().saturating_sub(MAX_RANK_ROWS) + self.more_ranks;
        if hidden > 0 {
            let more = format!(
                "… and {}; `--rank` shows one\n",
                plural(hidden, "more rank")
            );
            text.push_str(&paint.text(Style::Dim, &more));
        }
        if !problems.is_empty() {
            text.push_str(&format!("\n{problems}\n"));
        }
        text
    }
}

impl Rank {
    fn new(rank: usize, cost: &LoadCost) -> Self {
        let buffers = cost.read_bytes.min(MAX_LOAD_BUFFER_BYTES as u64);
        Self {
            rank,
            wanted_bytes: cost.wanted_bytes,
            read_bytes: cost.read_bytes,
            over_read: cost.over_read(),
            files: cost.files,
            reads: cost.reads,
            memory_bytes: cost.target_bytes + buffers,
        }
    }
}

impl From<&cairn::checkpoint::Missing> for Missing {
    fn from(missing: &cairn::checkpoint::Missing) -> Self {
        Self {
            name: missing.name.clone(),
            near: missing.near.clone(),
        }
    }
}

impl From<&cairn::checkpoint::Mismatch> for Mismatched {
    fn from(mismatch: &cairn::checkpoint::Mismatch) -> Self {
        Self {
            name: mismatch.name.clone(),
            wanted: mismatch.wanted.clone(),
            stored: mismatch.stored.clone(),
        }
    }
}
