//! `cairn plan reshard`: which bytes would go from rank to rank to change a layout in memory.

use crate::args::PlanReshard;
use crate::commands::layout::lay_out;
use crate::error::{Error, Exit};
use crate::open::open;
use crate::printer::Printer;
use crate::table::{Paint, Table};
use crate::units::size;
use cairn::checkpoint::name_family;
use cairn::reshard::{Options, Plan, Planner};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Serialize)]
struct Report {
    source: String,
    mesh: String,
    to_mesh: String,
    tensors: usize,
    moved_bytes: u64,
    messages: usize,
    patterns: Vec<Move>,
}

/// Tensors that are the same but for their layer, and moved in the same way.
#[derive(Debug, Serialize)]
struct Move {
    pattern: String,
    count: usize,
    from: String,
    to: String,
    collectives: Vec<String>,
    moved_bytes: u64,
    messages: usize,
}

pub(crate) fn run(args: &PlanReshard, printer: &Printer) -> Result<Exit, Error> {
    let opened = open(&args.source, printer)?;
    let from = lay_out(
        opened.source(),
        &args.layout.mesh,
        &args.layout.shard,
        printer,
    )?;
    let to = lay_out(opened.source(), &args.to_mesh, &args.to_shard, printer)?;
    let mut planner = Planner::new(Options::default());
    let mut moves: BTreeMap<[String; 3], Move> = BTreeMap::new();
    for ((name, from), to) in from.iter().zip(to.values()) {
        let plan = planner.plan(from, to)?;
        let key = [name_family(name), from.to_string(), to.to_string()];
        let entry = moves
            .entry(key)
            .or_insert_with_key(|key| Move::new(key, &plan));
        entry.add(&plan);
    }
    let patterns: Vec<Move> = moves.into_values().collect();
    let report = Report {
        source: args.source.clone(),
        mesh: args.layout.mesh.to_string(),
        to_mesh: args.to_mesh.to_string(),
        tensors: from.len(),
        moved_bytes: patterns.iter().map(|entry| entry.moved_bytes).sum(),
        messages: patterns.iter().map(|entry| entry.messages).sum(),
        patterns,
    };
    printer.report(&report, || report.text(printer.paint()))?;
    Ok(Exit::Done)
}

impl Move {
    fn new([pattern, from, to]: &[String; 3], plan: &Plan) -> Self {
        let names: BTreeSet<String> = plan
            .steps
            .iter()
            .map(|step| step.collective.to_string())
            .collect();
        Self {
            pattern: pattern.clone(),
            count: 0,
            from: from.clone(),
            to: to.clone(),
            collectives: names.into_iter().collect(),
            moved_bytes: 0,
            messages: 0,
        }
    }

    fn add(&mut self, plan: &Plan) {
        let cost = plan.cost();
        self.count += 1;
        self.moved_bytes += cost.moved_bytes as u64;
        self.messages += cost.messages;
    }
}

impl Report {
    fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        facts.fact("mesh", format!("{} → {}", self.mesh, self.to_mesh));
        facts.fact("tensors", self.tensors.to_string());
        facts.fact(
            "moved",
            format!("{} in {} messages", size(self.moved_bytes), self.messages),
        );
        let mut table = Table::new(&[
            "PATTERN",
            " COUNT",
            "SOURCE",
            "TARGET",
            "COLLECTIVE",
            " MOVED",
        ]);
        for entry in &self.patterns {
            table.row(vec![
                entry.pattern.as_str().into(),
                entry.count.to_string().into(),
                entry.from.as_str().into(),
                entry.to.as_str().into(),
                entry.collectives.join(", ").into(),
                size(entry.moved_bytes).into(),
            ]);
        }
        format!("{}\n{}", facts.render(paint), table.render(paint))
    }
}
