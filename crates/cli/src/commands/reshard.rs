//! `cairn reshard`: a checkpoint or model as a new checkpoint for another mesh.

use super::layout::{RankFile, plan_save, planned_files, world};
use super::plan::file_table;
use crate::args::Reshard;
use crate::error::{Error, Exit};
use crate::open::{Opened, open, target_run};
use crate::printer::Printer;
use crate::table::{Paint, Table};
use crate::units::{plural, size};
use cairn::checkpoint::{
    IfCommitted, MAX_LOAD_BUFFER_BYTES, NewCheckpoint, RewriteOptions, SaveOptions, SavePlan,
    rewrite,
};
use cairn::sharding::TensorSpec;
use serde::Serialize;
use std::collections::BTreeMap;
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
    let (specs, plan) = plan_save(opened.source(), &args.layout, printer)?;
    let new = new_checkpoint(args, &opened, specs)?;
    let report = Report::new(args, &new, &plan);
    if args.dry_run {
        printer.report(&report, || report.text(&plan, printer.paint()))?;
        return Ok(Exit::Done);
    }
    warn_of_rank_values(&opened, printer)?;
    let options = RewriteOptions {
        memory_bytes: args.memory,
        ..RewriteOptions::default()
    };
    let bar = printer.progress("reshard", plan.len_bytes(), options.progress.clone());
    rewrite(opened.source(), &target, &new, &options)?;
    drop(bar);
    printer.report(&report, || report.text(&plan, printer.paint()))?;
    let seconds = start.elapsed().as_secs_f64();
    printer.note(&format!(
        "wrote {} in {seconds:.1} s",
        size(report.len_bytes)
    ));
    Ok(Exit::Done)
}

/// Everything of the source but its layout comes along.
fn new_checkpoint(
    args: &Reshard,
    opened: &Opened,
    tensors: BTreeMap<String, TensorSpec>,
) -> Result<NewCheckpoint, Error> {
    let manifest = opened.checkpoint().map(|checkpoint| checkpoint.manifest());
    let step = args.step.or(manifest.map(|manifest| manifest.step));
    Ok(NewCheckpoint {
        step: step.unwrap_or(0),
        world: world(&args.layout.mesh),
        tensors,
        aliases: opened.source().aliases(),
        values: opened.values().clone(),
        save: SaveOptions {
            tags: manifest.map_or(Vec::new(), |manifest| manifest.tags.clone()),
            if_committed: match args.replace {
                true => IfCommitted::Replace,
                false => IfCommitted::Refuse,
            },
            assets: opened.source().assets()?.into_iter().collect(),
        },
    })
}

/// What belongs to one rank of the old layout belongs to none of the new one.
fn warn_of_rank_values(opened: &Opened, printer: &Printer) -> Result<(), Error> {
    let Some(checkpoint) = opened.checkpoint() else {
        return Ok(());
    };
    let values = checkpoint.rank_values(0)?.unwrap_or_default();
    if !values.is_empty() {
        let names: Vec<String> = values.keys().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        printer.warn(&format!(
            "values that each rank saved for itself are left out: {names}"
        ));
    }
    Ok(())
}

impl Report {
    fn new(args: &Reshard, new: &NewCheckpoint, plan: &SavePlan) -> Self {
        Self {
            source: args.source.clone(),
            target: args.target.clone(),
            step: new.step,
            mesh: args.layout.mesh.to_string(),
            dry_run: args.dry_run,
            tensors: new.tensors.len(),
            files: plan.files(),
            len_bytes: plan.len_bytes(),
            memory_bytes: args.memory + MAX_LOAD_BUFFER_BYTES as u64,
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
