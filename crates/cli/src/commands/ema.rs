//! `cairn ema`: the average of stored steps, as a model or a new step.

use super::output::{File, Output, Target, file_table};
use super::weights::{Weights, check_patterns};
use crate::args::{Ema as Args, EmaStart};
use crate::error::{Error, Exit};
use crate::printer::Printer;
use crate::steps::{Named, open_steps};
use crate::table::{Paint, Table};
use crate::units::{plural, size};
use cairn::checkpoint::ema::{AverageStep, Ema, Start, average_of, is_stored_average, post_hoc};
use cairn::checkpoint::{Computed, RewriteOptions};
use serde::Serialize;
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
    #[serde(skip)]
    target_text: String,
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
    let (mut step, mut values) = (None, BTreeMap::new());
    if let Some(last) = steps.last() {
        check_patterns(&args.names, last.source.as_ref())?;
        step = last.step;
        values = last.values.clone();
        values.retain(|name, _| !is_stored_average(name));
    }
    let target = Target {
        path: args.target.clone(),
        format: args.to,
        shard_bytes: args.shard_size,
        step: args.step.or(step),
        replace: args.replace,
    };
    let average = average(args, steps)?;
    let computed = Arc::new(average.source);
    let mut weights = Weights::of_average(computed.clone(), values);
    if !args.names.is_empty() {
        check_patterns(&args.names, computed.as_ref())?;
        weights.retain(|name| args.names.iter().any(|pattern| pattern.matches(name)));
    }
    let output = Output::plan(&target, &weights)?;
    let names = weights.source.names().into_iter();
    let report = Report {
        sources,
        target: args.target.clone(),
        format: args.to.name(),
        step: output.step(),
        dry_run: args.dry_run,
        averaged_tensors: names.filter(|name| computed.is_computed(name)).count(),
        average: average.text,
        terms: average.terms,
        error: average.error,
        tensors: output.tensors(),
        len_bytes: output.len_bytes(),
        files: output.files.clone(),
        memory_bytes: args.memory + weights.buffer_bytes,
        target_text: target.text(output.step()),
    };
    let options = RewriteOptions {
        memory_bytes: args.memory,
        replace: args.replace,
        dry_run: args.dry_run,
        ..RewriteOptions::default()
    };
    let bar = printer.progress("ema", report.len_bytes, options.progress.clone());
    output.write(&options)?;
    drop(bar);
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

impl Report {
    fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        let verb = if self.dry_run { "would write" } else { "wrote" };
        facts.fact(verb, self.target_text.as_str());
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
        let files = file_table(&self.files, paint);
        format!("{}\n{files}", facts.render(paint))
    }
}
