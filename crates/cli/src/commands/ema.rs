//! `cairn ema`: the average of stored steps, as a model or a new step.

use super::convert::{File, file_table, model_files};
use super::weights::chosen;
use crate::args::{Ema as Args, EmaFormat, EmaStart};
use crate::error::{Error, Exit};
use crate::open::target_run;
use crate::printer::Printer;
use crate::steps::{Named, open_steps};
use crate::table::{Paint, Table};
use crate::units::{plural, size};
use cairn::checkpoint::ema::{
    AverageStep, Ema, MAX_COMPUTED_BUFFER_BYTES, Start, average_of, is_stored_average, post_hoc,
};
use cairn::checkpoint::{
    Computed, IfCommitted, Layout, MAX_LOAD_BUFFER_BYTES, NewCheckpoint, RewriteOptions,
    SaveOptions, SavePlan, ShardRules, Source, export_hf, plan_hf, rewrite,
};
use cairn::sharding::Mesh;
use cairn::store::{self, Store};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, Serialize)]
struct Report {
    sources: Vec<String>,
    target: String,
    format: &'static str,
    step: Option<u64>,
    dry_run: bool,
    average: String,
    terms: Vec<Term>,
    /// How far a post-hoc average is from the one asked for.
    error: Option<f64>,
    tensors: usize,
    averaged_tensors: usize,
    files: Vec<File>,
    len_bytes: u64,
    memory_bytes: u64,
}

/// A stored average that a post-hoc one is made of.
#[derive(Debug, Serialize)]
struct Term {
    source: String,
    label: String,
    factor: f64,
}

/// An average, and what is known of how it came about.
struct Average {
    source: Computed,
    text: String,
    terms: Vec<Term>,
    error: Option<f64>,
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, Error> {
    let start = Instant::now();
    let mut steps = Vec::new();
    for text in &args.sources {
        steps.extend(open_steps(text)?);
    }
    let sources: Vec<String> = steps.iter().map(|step| step.name.clone()).collect();
    let mut step = args.step;
    let mut values = BTreeMap::new();
    if let Some(last) = steps.last() {
        chosen(last.source.as_ref(), &args.names)?;
        step = step.or(last.step);
        values = last.values.clone();
    }
    let step = step.unwrap_or(0);
    let average = average(args, steps)?;
    let names = chosen(&average.source, &args.names)?;
    let output = Output::plan(args, &average.source, &names, step, values)?;
    let report = Report {
        sources,
        target: args.target.clone(),
        format: match args.to {
            EmaFormat::Hf => "hf",
            EmaFormat::Cairn => "cairn",
        },
        step: (args.to == EmaFormat::Cairn).then_some(step),
        dry_run: args.dry_run,
        averaged_tensors: names
            .iter()
            .filter(|name| average.source.is_computed(name))
            .count(),
        average: average.text,
        terms: average.terms,
        error: average.error,
        tensors: names.len(),
        len_bytes: output.len_bytes(),
        files: output.files(),
        memory_bytes: args.memory + (MAX_LOAD_BUFFER_BYTES + MAX_COMPUTED_BUFFER_BYTES) as u64,
    };
    if !args.dry_run {
        let options = RewriteOptions {
            memory_bytes: args.memory,
            ..RewriteOptions::default()
        };
        let bar = printer.progress("ema", report.len_bytes, options.progress.clone());
        output.write(&average.source, &names, args.shard_size, &options)?;
        drop(bar);
    }
    printer.report(&report, || report.text(printer.paint()))?;
    if !args.dry_run {
        let seconds = start.elapsed().as_secs_f64();
        let len = size(report.len_bytes);
        printer.note(&format!("wrote {len} in {seconds:.1} s"));
    }
    Ok(Exit::Done)
}

/// The average that the arguments ask for.
fn average(args: &Args, steps: Vec<Named>) -> Result<Average, Error> {
    let of = |step: Named| {
        let Named {
            name,
            source,
            values,
            ..
        } = step;
        (AverageStep { name, source }, values)
    };
    let steps: Vec<_> = steps.into_iter().map(of).collect();
    if let Some(sigma) = args.post_hoc {
        let made = post_hoc(sigma, steps)?;
        let term = |(source, label, factor)| Term {
            source,
            label,
            factor,
        };
        return Ok(Average {
            text: format!("power {sigma}, made from {} averages", made.terms.len()),
            terms: made.terms.into_iter().map(term).collect(),
            error: Some(made.error),
            source: made.source,
        });
    }
    let ema = definition(args);
    let count = steps.len();
    let steps = steps.into_iter().map(|(step, _)| step).collect();
    let source = average_of(&ema, steps)?;
    let text = ema.to_string();
    let text = text
        .split_once(": ")
        .map_or(text.as_str(), |(_, text)| text);
    Ok(Average {
        text: format!(
            "{}, over {}",
            text.replace(", every step", ""),
            plural(count, "step")
        ),
        terms: Vec::new(),
        error: None,
        source,
    })
}

fn definition(args: &Args) -> Ema {
    let ema = match (args.decay, args.power) {
        (Some(decay), _) => Ema::exponential(decay),
        (_, Some(sigma)) => Ema::power(sigma),
        _ => Ema::uniform(),
    };
    let from_zero = args.start == EmaStart::Zero;
    Ema {
        start: if from_zero { Start::Zero } else { Start::Copy },
        bias_correction: from_zero,
        include: args.names.clone(),
        ..ema
    }
}

/// What is written where.
enum Output {
    Model {
        target: Arc<dyn Store>,
        taken: Vec<String>,
        files: Vec<File>,
    },
    Step {
        target: Arc<dyn Store>,
        new: Box<NewCheckpoint>,
        plan: SavePlan,
    },
}

impl Output {
    fn plan(
        args: &Args,
        source: &Computed,
        names: &[&str],
        step: u64,
        values: BTreeMap<String, Value>,
    ) -> Result<Self, Error> {
        if args.to == EmaFormat::Cairn {
            let target = target_run(&args.target)?;
            let new = new_checkpoint(args, source, names, step, values)?;
            let layout = Layout::new(new.tensors.clone(), new.aliases.clone());
            let plan = SavePlan::new(&layout, 1)?;
            let new = Box::new(new);
            return Ok(Output::Step { target, new, plan });
        }
        let target = store::open(&args.target)?;
        let taken = model_files(target.as_ref())?;
        let path = args.target.clone();
        if !taken.is_empty() && is_source(args, target.as_ref()) {
            return Err(Error::SamePlace { path });
        }
        if !taken.is_empty() && !args.replace {
            return Err(Error::TargetTaken { path, files: taken });
        }
        let files = plan_hf(source, names, args.shard_size)?;
        let files = files.into_iter().map(File::from).collect();
        Ok(Output::Model {
            target,
            taken,
            files,
        })
    }

    fn files(&self) -> Vec<File> {
        match self {
            Output::Model { files, .. } => files.clone(),
            Output::Step { .. } => Vec::new(),
        }
    }

    fn len_bytes(&self) -> u64 {
        match self {
            Output::Model { files, .. } => files.iter().map(|file| file.len_bytes).sum(),
            Output::Step { plan, .. } => plan.len_bytes(),
        }
    }

    fn write(
        self,
        source: &Computed,
        names: &[&str],
        shard_bytes: u64,
        options: &RewriteOptions,
    ) -> Result<(), Error> {
        match self {
            Output::Model { target, taken, .. } => {
                for key in taken {
                    target.delete(&key)?;
                }
                export_hf(source, &target, names, shard_bytes, options)?;
            }
            Output::Step { target, new, .. } => {
                rewrite(source, &target, &new, options)?;
            }
        }
        Ok(())
    }
}

/// Whether the target is one of the folders that are averaged.
fn is_source(args: &Args, target: &dyn Store) -> bool {
    let opened = args
        .sources
        .iter()
        .filter_map(|path| store::open(path).ok());
    opened
        .into_iter()
        .any(|source| source.url() == target.url())
}

/// A step for one rank with everything that came with the last one but its averages.
fn new_checkpoint(
    args: &Args,
    source: &Computed,
    names: &[&str],
    step: u64,
    mut values: BTreeMap<String, Value>,
) -> Result<NewCheckpoint, Error> {
    let mut tensors = ShardRules::parse(Mesh::single(), &[] as &[&str])?.lay_out(source)?;
    tensors.retain(|name, _| names.contains(&name.as_str()));
    let mut aliases = source.aliases();
    aliases.retain(|name, of| names.contains(&name.as_str()) && tensors.contains_key(of));
    values.retain(|name, _| !is_stored_average(name));
    Ok(NewCheckpoint {
        step,
        world: 1,
        tensors,
        aliases,
        values,
        save: SaveOptions {
            if_committed: match args.replace {
                true => IfCommitted::Replace,
                false => IfCommitted::Refuse,
            },
            assets: source.assets()?.into_iter().collect(),
            ..SaveOptions::default()
        },
    })
}

impl Report {
    fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        let verb = if self.dry_run { "would write" } else { "wrote" };
        let target = &self.target;
        facts.fact(
            verb,
            match self.step {
                Some(step) => format!("step {step} of `{target}`"),
                None => format!("a Hugging Face model to `{target}`"),
            },
        );
        facts.fact("average", self.average.as_str());
        if let (Some(first), Some(last)) = (self.sources.first(), self.sources.last()) {
            facts.fact("from", format!("`{first}` to `{last}`"));
        }
        if let Some(error) = self.error {
            facts.fact("profile", format!("off by {:.2} %", 100.0 * error));
        }
        let averaged = self.averaged_tensors;
        facts.fact("tensors", format!("{}, {averaged} averaged", self.tensors));
        facts.fact("size", size(self.len_bytes));
        facts.fact("memory", format!("at most {}", size(self.memory_bytes)));
        match self.files.is_empty() {
            true => facts.render(paint),
            false => format!(
                "{}\n{}",
                facts.render(paint),
                file_table(&self.files, paint)
            ),
        }
    }
}
