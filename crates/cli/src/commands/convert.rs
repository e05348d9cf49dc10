//! `cairn convert`: tensors of one place in the format of another.

use super::output::{File, Output, Target, file_table};
use super::weights::Weights;
use crate::args::{Convert, Format};
use crate::error::{Error, Exit};
use crate::open::open;
use crate::printer::Printer;
use crate::table::{Paint, Table};
use crate::units::{plural, size};
use cairn::checkpoint::{OnUnfinished, RewriteOptions};
use serde::Serialize;
use std::time::Instant;

/// What a disk is taken to read and write in a second, together, when nothing is known of it.
const ASSUMED_BYTES_PER_SECOND: u64 = 1 << 30;

#[derive(Debug, Serialize)]
struct Report {
    source: String,
    ema: Option<String>,
    target: String,
    format: &'static str,
    step: Option<u64>,
    dry_run: bool,
    tensors: usize,
    files: Vec<File>,
    read_bytes: u64,
    len_bytes: u64,
    memory_bytes: u64,
    /// How long it would take on a disk of `assumed_bytes_per_second`.
    estimated_seconds: f64,
    assumed_bytes_per_second: u64,
    assets: Vec<String>,
    left_out_tensors: usize,
    left_out_values: Vec<String>,
    #[serde(skip)]
    target_text: String,
}

pub(crate) fn run(args: &Convert, printer: &Printer) -> Result<Exit, Error> {
    let start = Instant::now();
    let opened = open(&args.source, printer)?;
    let target = Target {
        path: args.target.clone(),
        format: args.to,
        shard_bytes: args.shard_size,
        step: args.step,
        replace: args.replace,
    };
    let mut weights = Weights::choose(&args.weights, opened)?;
    if args.to == Format::Hf && args.weights.keys.is_empty() {
        weights.without_averages();
    }
    let output = Output::plan(&target, &weights)?;
    let report = Report::new(args, &target, &weights, &output)?;
    let options = RewriteOptions {
        memory_bytes: args.memory,
        verify: !args.no_verify,
        identity: weights.identity.clone(),
        unfinished: on_unfinished(args.resume, args.replace),
        replace: args.replace,
        dry_run: args.plan,
        ..RewriteOptions::default()
    };
    if args.plan {
        output.write(&options)?;
        printer.report(&report, || report.text(printer.paint()))?;
        return Ok(Exit::Done);
    }
    let bar = printer.progress("convert", report.len_bytes, options.progress.clone());
    output.write(&options)?;
    drop(bar);
    printer.report(&report, || report.text(printer.paint()))?;
    let seconds = start.elapsed().as_secs_f64();
    printer.note(&format!(
        "wrote {} in {seconds:.1} s",
        size(report.len_bytes)
    ));
    Ok(Exit::Done)
}

/// What `--resume` and `--replace` say about what was cut short.
pub(super) fn on_unfinished(resume: bool, replace: bool) -> OnUnfinished {
    match (resume, replace) {
        (true, _) => OnUnfinished::Resume,
        (false, true) => OnUnfinished::Discard,
        (false, false) => OnUnfinished::Refuse,
    }
}

impl Report {
    fn new(
        args: &Convert,
        target: &Target,
        weights: &Weights,
        output: &Output,
    ) -> Result<Self, Error> {
        let (read_bytes, len_bytes) = (weights.read_bytes, output.len_bytes());
        let estimated_seconds =
            (read_bytes as f64 + len_bytes as f64) / ASSUMED_BYTES_PER_SECOND as f64;
        Ok(Self {
            source: args.source.clone(),
            ema: args.weights.ema.clone(),
            target: args.target.clone(),
            format: args.to.name(),
            step: output.step(),
            dry_run: args.plan,
            tensors: output.tensors(),
            files: output.files.clone(),
            read_bytes,
            len_bytes,
            memory_bytes: args.memory + weights.buffer_bytes,
            estimated_seconds,
            assumed_bytes_per_second: ASSUMED_BYTES_PER_SECOND,
            assets: output.assets()?,
            left_out_tensors: weights.left_out,
            left_out_values: output.lost_values(),
            target_text: target.text(output.step()),
        })
    }

    fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        let verb = if self.dry_run { "would write" } else { "wrote" };
        facts.fact(verb, self.target_text.as_str());
        if let Some(label) = &self.ema {
            facts.fact("average", format!("`{label}` in place of the weights"));
        }
        facts.fact("tensors", self.tensors.to_string());
        let files = plural(self.files.len(), "file");
        facts.fact("files", format!("{files}, {}", size(self.len_bytes)));
        if self.dry_run {
            facts.fact("reads", size(self.read_bytes));
        }
        facts.fact("memory", format!("at most {}", size(self.memory_bytes)));
        if self.dry_run {
            let rate = size(self.assumed_bytes_per_second);
            let seconds = self.estimated_seconds;
            facts.fact(
                "time",
                format!("about {seconds:.1} s, if the disk moves {rate}/s"),
            );
        }
        if !self.assets.is_empty() {
            facts.fact("side files", self.assets.join(", "));
        }
        if let Some(left) = self.left_out() {
            facts.fact("left out", left);
        }
        let files = file_table(&self.files, paint);
        format!("{}\n{files}", facts.render(paint))
    }

    /// What does not come along.
    fn left_out(&self) -> Option<String> {
        let mut left = Vec::new();
        if self.left_out_tensors > 0 {
            left.push(plural(self.left_out_tensors, "tensor"));
        }
        if !self.left_out_values.is_empty() {
            left.push(format!("values {}", self.left_out_values.join(", ")));
        }
        (!left.is_empty()).then(|| left.join("; "))
    }
}
