//! `cairn merge`: models into one, by a mergekit config.

use crate::args::Merge as Args;
use crate::error::{Error, Exit};
use crate::printer::Printer;
use crate::table::{Paint, Table};
use crate::units::{count, plural, size};
use cairn::checkpoint::split_path;
use cairn::merge::{Config, Merge, Options, PlannedFile, WriteOptions};
use cairn::store;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// What one thread works through in a second, about: elements of one model, looked at once.
const WORK_PER_SECOND: u64 = 200_000_000;

#[derive(Debug, Serialize)]
struct Report {
    config: String,
    target: String,
    method: &'static str,
    models: Vec<String>,
    base_model: Option<String>,
    seed: Option<u64>,
    dry_run: bool,
    tensors: usize,
    parameters: u64,
    files: Vec<File>,
    assets: Vec<String>,
    /// Files that an earlier try had finished.
    kept: Vec<String>,
    read_bytes: u64,
    write_bytes: u64,
    memory_bytes: u64,
    threads: usize,
    /// A rough guess, on a machine whose disk keeps up.
    seconds: f64,
}

/// A file of the result.
#[derive(Debug, Serialize)]
struct File {
    name: String,
    tensors: usize,
    len_bytes: u64,
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, Error> {
    let start = Instant::now();
    let config = read(&args.config)?;
    for warning in &config.warnings {
        printer.warn(&format!("{}, {warning}", args.config));
    }
    let target = args.target.as_deref().or(config.output_path());
    let target = target.ok_or(Error::NoTarget)?.to_string();
    let defaults = Options::default();
    let options = Options {
        threads: args.threads.map_or(defaults.threads, usize::from),
        shard_bytes: args.shard_size,
        seed: args.seed,
    };
    let merge = Merge::new(config, options)?;
    let mut report = Report::new(args, target.clone(), &merge, options)?;
    let options = WriteOptions {
        resume: args.resume,
        replace: args.replace,
        dry_run: args.dry_run,
        progress: Arc::default(),
    };
    let bar = printer.progress("merge", report.write_bytes, options.progress.clone());
    let written = merge.write(&store::open(&target)?, &options)?;
    drop(bar);
    report.kept = written.kept;
    printer.report(&report, || report.text(printer.paint()))?;
    if !args.dry_run {
        let seconds = start.elapsed().as_secs_f64();
        let len = size(report.write_bytes);
        printer.note(&format!("wrote {len} in {seconds:.1} s"));
    }
    Ok(Exit::Done)
}

fn read(path: &str) -> Result<Config, Error> {
    let (folder, name) = split_path(path);
    let bytes = store::open(&folder)?.get(&name)?;
    Ok(Config::parse(&String::from_utf8_lossy(&bytes))?)
}

impl Report {
    fn new(args: &Args, target: String, merge: &Merge, options: Options) -> Result<Self, Error> {
        let config = merge.config();
        let cost = merge.cost();
        let file = |file: PlannedFile| File {
            name: file.name,
            tensors: file.tensors,
            len_bytes: file.len_bytes,
        };
        let files: Vec<File> = merge.files()?.into_iter().map(file).collect();
        Ok(Self {
            config: args.config.clone(),
            target,
            method: config.method.name,
            models: config.models().iter().map(ToString::to_string).collect(),
            base_model: config.base_model.as_ref().map(ToString::to_string),
            seed: config.method.is_random.then_some(options.seed),
            dry_run: args.dry_run,
            tensors: cost.tensors,
            parameters: cost.elements,
            write_bytes: files.iter().map(|file| file.len_bytes).sum(),
            files,
            assets: merge.assets().map(str::to_string).collect(),
            kept: Vec::new(),
            read_bytes: cost.read_bytes,
            memory_bytes: cost.memory_bytes,
            threads: options.threads,
            seconds: cost.work as f64 / (WORK_PER_SECOND * options.threads as u64) as f64,
        })
    }

    fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        facts.fact("method", self.method);
        facts.fact("models", self.models.join(", "));
        if let Some(seed) = self.seed {
            facts.fact("seed", seed.to_string());
        }
        let tensors = plural(self.tensors, "tensor");
        facts.fact(
            "result",
            format!("{tensors}, {} parameters", count(self.parameters)),
        );
        facts.fact("reads", size(self.read_bytes));
        facts.fact("memory", format!("at most {}", size(self.memory_bytes)));
        if self.dry_run {
            let threads = plural(self.threads, "thread");
            facts.fact(
                "time",
                format!("about {:.0} s on {threads}", self.seconds.max(1.0)),
            );
        }
        if !self.kept.is_empty() {
            facts.fact("kept", plural(self.kept.len(), "finished file"));
        }
        facts.fact("assets", self.assets.join(", "));
        let mut files = Table::new(&["file", "tensors", "size"]);
        for file in &self.files {
            files.row(vec![
                file.name.clone().into(),
                file.tensors.to_string().into(),
                size(file.len_bytes).into(),
            ]);
        }
        let verb = if self.dry_run { "would write" } else { "wrote" };
        let (facts, files) = (facts.render(paint), files.render(paint));
        format!("{verb} {}\n\n{facts}\n{files}", self.target)
    }
}
