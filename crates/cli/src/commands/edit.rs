//! `cairn edit`: other values, other names, or fewer tensors, as a new version.

mod npy;
mod parse;

use super::output::{File, Output, Target, file_table, new_checkpoint};
use super::reshard::{rank_values, warn_of_rank_values};
use super::weights::{Weights, check_patterns};
use crate::args::{Edit, Format};
use crate::error::{Error, Exit};
use crate::open::{Opened, open};
use crate::printer::Printer;
use crate::table::{Paint, Table};
use crate::units::{plural, size};
use cairn::checkpoint::edit::{assigned, renamed};
use cairn::checkpoint::{
    Checkpointer, Error as CheckpointError, Manifest, NewCheckpoint, RewriteOptions, World,
};
use cairn::sharding::TensorSpec;
use cairn::store::redact;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
struct Report {
    source: String,
    target: String,
    format: &'static str,
    step: Option<u64>,
    dry_run: bool,
    assigned: usize,
    renamed: usize,
    deleted: usize,
    tensors: usize,
    files: Vec<File>,
    len_bytes: u64,
    memory_bytes: u64,
    #[serde(skip)]
    target_text: String,
}

pub(crate) fn run(args: &Edit, printer: &Printer) -> Result<Exit, Error> {
    let opened = open(&args.path, printer)?;
    let target = target(args, &opened)?;
    let lost = rank_values(&opened)?;
    let manifest = opened.checkpoint().map(|found| found.manifest().clone());
    let mut weights = Weights::all(opened)?;
    let names: BTreeMap<String, String> = args.rename.iter().cloned().collect();
    edit(args, &names, &mut weights)?;
    let output = match &manifest {
        Some(manifest) => {
            let new = as_before(new_checkpoint(&target, &weights)?, manifest, &names);
            Output::plan_step(&target, &weights, new)?
        }
        None => Output::plan(&target, &weights)?,
    };
    let report = Report {
        source: redact(&args.path),
        target: target.path.clone(),
        format: target.format.name(),
        step: output.step(),
        dry_run: args.plan,
        assigned: args.assignments.len(),
        renamed: names.len(),
        deleted: weights.left_out,
        tensors: output.tensors(),
        files: output.files.clone(),
        len_bytes: output.len_bytes(),
        memory_bytes: args.memory + weights.buffer_bytes,
        target_text: target.text(output.step()),
    };
    if !args.plan {
        warn_of_rank_values(&lost, printer);
    }
    let options = RewriteOptions {
        memory_bytes: args.memory,
        dry_run: args.plan,
        ..RewriteOptions::default()
    };
    let bar = printer.progress("edit", report.len_bytes, options.progress.clone());
    output.write(&options).map_err(without_replace)?;
    drop(bar);
    printer.report(&report, || report.text(printer.paint()))?;
    Ok(Exit::Done)
}

/// What is in the way of an edit stays there.
fn without_replace(error: Error) -> Error {
    match error {
        Error::Checkpoint(CheckpointError::TargetTaken { url, files }) => {
            Error::OutTaken { url, files }
        }
        error => error,
    }
}

/// Where the result goes: to a run as a new step, else where `--out` says, in the format of the source.
fn target(args: &Edit, opened: &Opened) -> Result<Target, Error> {
    let mut target = Target {
        path: args.out.clone().unwrap_or_default(),
        format: Format::Cairn,
        shard_bytes: args.shard_size,
        step: args.step,
        replace: false,
    };
    match opened {
        Opened::Checkpoint { run, .. } => {
            if args.out.is_none() {
                target.path = run.url();
            }
            if target.step.is_none() {
                let run = cairn::store::open(&target.path)?;
                let steps = Checkpointer::new(run, World::single()).steps()?;
                target.step = steps.last().map(|newest| newest + 1);
            }
            return Ok(target);
        }
        Opened::Folder(model) if model.model().format == "dcp" => target.format = Format::Dcp,
        Opened::Folder(_) => target.format = Format::Hf,
        Opened::File(_) => target.format = Format::Safetensors,
    }
    match args.out {
        Some(_) => Ok(target),
        None => Err(Error::NoOut {
            path: args.path.clone(),
        }),
    }
}

/// Makes all edits. Every name is one of the source.
fn edit(args: &Edit, names: &BTreeMap<String, String>, weights: &mut Weights) -> Result<(), Error> {
    if !args.assignments.is_empty() {
        let source = weights.source.as_ref();
        let assignments = args.assignments.iter();
        let assignments = assignments.map(|text| parse::assignment(text, source));
        let assignments: Vec<_> = assignments.collect::<Result<_, _>>()?;
        weights.source = assigned(weights.source.clone(), &assignments)?;
    }
    if !args.delete.is_empty() {
        check_patterns(&args.delete, weights.source.as_ref())?;
        weights.retain(|name| !args.delete.iter().any(|pattern| pattern.matches(name)));
    }
    if !names.is_empty() {
        weights.source = renamed(weights.source.clone(), names)?;
    }
    Ok(())
}

/// The step laid out as it was, for as many ranks.
fn as_before(
    mut new: NewCheckpoint,
    manifest: &Manifest,
    names: &BTreeMap<String, String>,
) -> NewCheckpoint {
    let layout = &manifest.layout;
    let new_name = |old: &str| names.get(old).cloned().unwrap_or_else(|| old.to_string());
    let mut specs: BTreeMap<String, TensorSpec> = BTreeMap::new();
    for (name, spec) in layout.iter() {
        specs.insert(new_name(name), spec.clone());
    }
    for (alias, of) in layout.aliases() {
        let spec = layout.find(of).map(|index| layout.spec(index).clone());
        specs.extend(spec.map(|spec| (new_name(alias), spec)));
    }
    for name in layout.derived().keys() {
        let spec = layout.derived_spec(name);
        specs.extend(spec.map(|spec| (new_name(name), spec)));
    }
    for (name, spec) in &mut new.tensors {
        if let Some(before) = specs.remove(name) {
            *spec = before;
        }
    }
    new.world = manifest.writers();
    new
}

impl Report {
    fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        let verb = if self.dry_run { "would write" } else { "wrote" };
        facts.fact(verb, self.target_text.as_str());
        let edits = [
            (self.assigned, "assignment"),
            (self.renamed, "new name"),
            (self.deleted, "deleted tensor"),
        ];
        let edits = edits.iter().filter(|(count, _)| *count > 0);
        let edits: Vec<String> = edits.map(|(count, what)| plural(*count, what)).collect();
        facts.fact("edits", edits.join(", "));
        facts.fact("tensors", self.tensors.to_string());
        let files = plural(self.files.len(), "file");
        facts.fact("files", format!("{files}, {}", size(self.len_bytes)));
        facts.fact("memory", format!("at most {}", size(self.memory_bytes)));
        let files = file_table(&self.files, paint);
        format!("{}\n{files}", facts.render(paint))
    }
}
