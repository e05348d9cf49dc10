//! `cairn reshard`: a checkpoint or model as a new checkpoint for another mesh.

use super::convert::on_unfinished;
use super::layout::{RankFile, plan_save, planned_files, world};
use super::plan::file_table;
use super::weights::Weights;
use crate::args::Reshard;
use crate::error::{Error, Exit};
use crate::open::{Opened, open, target_run};
use crate::printer::Printer;
use crate::table::{Paint, Table};
use crate::units::{plural, size};
use cairn::checkpoint::{
    IfCommitted, NewCheckpoint, RewriteOptions, SaveOptions, SavePlan, rewrite,
};
use serde::Serialize;
use std::time::Instant;

#[derive(Debug, Serialize)]
struct Report {
    source: String,
    target: String,
    step: u64,
    mesh: String,
    dry_run: bool,
    tensors: usize,
    files: usize,
    len_bytes: u64,
    memory_bytes: u64,
    ranks: Vec<RankFile>,
}

pub(crate) fn run(args: &Reshard, printer: &Printer) -> Result<Exit, Error> {
    let start = Instant::now();
    let opened = open(&args.source, printer)?;
    let target = target_run(&args.target)?;
    let lost = rank_values(&opened)?;
    let weights = Weights::choose(&args.weights, opened)?;
    let source = weights.source.as_ref();
    let (tensors, plan) = plan_save(source, &args.layout, printer)?;
    let new = NewCheckpoint {
        step: args.step.or(weights.step).unwrap_or(0),
        world: world(&args.layout.mesh),
        tensors,
        aliases: source.aliases(),
        values: weights.values.clone(),
        save: SaveOptions {
            tags: weights.tags.clone(),
            if_committed: match args.replace {
                true => IfCommitted::Replace,
                false => IfCommitted::Refuse,
            },
            assets: source.assets()?.into_iter().collect(),
        },
    };
    let report = Report::new(args, &weights, &new, &plan);
    let options = RewriteOptions {
        memory_bytes: args.memory,
        identity: weights.identity.clone(),
        unfinished: on_unfinished(args.resume, args.replace),
        dry_run: args.dry_run,
        ..RewriteOptions::default()
    };
    if args.dry_run {
        rewrite(source, &target, &new, &options)?;
        printer.report(&report, || report.text(&plan, printer.paint()))?;
        return Ok(Exit::Done);
    }
    warn_of_rank_values(&lost, printer);
    let bar = printer.progress("reshard", plan.len_bytes(), options.progress.clone());
    rewrite(source, &target, &new, &options)?;
    drop(bar);
    printer.report(&report, || report.text(&plan, printer.paint()))?;
    let seconds = start.elapsed().as_secs_f64();
    printer.note(&format!(
        "wrote {} in {seconds:.1} s",
        size(report.len_bytes)
    ));
    Ok(Exit::Done)
}

/// The values that belong to one rank of the old layout, and so to none of the new one.
pub(super) fn rank_values(opened: &Opened) -> Result<Vec<String>, Error> {
    let Some(checkpoint) = opened.checkpoint() else {
        return Ok(Vec::new());
    };
    let values = checkpoint.rank_values(0)?.unwrap_or_default();
    Ok(values.keys().map(|name| format!("`{name}`")).collect())
}

pub(super) fn warn_of_rank_values(names: &[String], printer: &Printer) {
    if !names.is_empty() {
        let names = names.join(", ");
        printer.warn(&format!(
            "values that each rank saved for itself are left out: {names}"
        ));
    }
}

impl Report {
    fn new(args: &Reshard, weights: &Weights, new: &NewCheckpoint, plan: &SavePlan) -> Self {
        Self {
            source: args.source.clone(),
            target: args.target.clone(),
            step: new.step,
            mesh: args.layout.mesh.to_string(),
            dry_run: args.dry_run,
            tensors: new.tensors.len(),
            files: plan.files(),
            len_bytes: plan.len_bytes(),
            memory_bytes: args.memory + weights.buffer_bytes,
            ranks: planned_files(plan),
        }
    }

    fn text(&self, plan: &SavePlan, paint: Paint) -> String {
        let mut facts = Table::facts();
        let verb = if self.dry_run { "would write" } else { "wrote" };
        facts.fact(verb, format!("step {} of `{}`", self.step, self.target));
        facts.fact("mesh", self.mesh.as_str());
        facts.fact("tensors", self.tensors.to_string());
        facts.fact(
            "files",
            format!("{}, {}", plural(self.files, "file"), size(self.len_bytes)),
        );
        facts.fact("memory", format!("at most {}", size(self.memory_bytes)));
        let mut text = facts.render(paint);
        if self.dry_run {
            text.push('\n');
            text.push_str(&file_table(plan, paint));
        }
        text
    }
}
