//! `cairn convert`: whole tensors as a Hugging Face model, or as a folder that torch loads.

use super::weights::{Values, Weights};
use crate::args::{Convert, Format};
use crate::error::{Error, Exit};
use crate::open::{Opened, open};
use crate::printer::Printer;
use crate::table::{Paint, Table};
use crate::units::{plural, size};
use cairn::checkpoint::split_path;
use cairn::checkpoint::{
    DcpContents, Pattern, PlannedFile, RewriteOptions, export_dcp, export_hf, plan_dcp, plan_hf,
};
use cairn::formats::dcp::METADATA_FILE;
use cairn::formats::hf::{INDEX_FILE, SINGLE_FILE};
use cairn::formats::torch_zip::value_archive;
use cairn::store::{self, Store};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Debug, Serialize)]
struct Report {
    source: String,
    ema: Option<String>,
    target: String,
    format: &'static str,
    dry_run: bool,
    tensors: usize,
    files: Vec<File>,
    len_bytes: u64,
    memory_bytes: u64,
    assets: Vec<String>,
    left_out_tensors: usize,
    left_out_values: Vec<String>,
}

/// A file of a model.
#[derive(Debug, Clone, Serialize)]
pub(super) struct File {
    name: String,
    tensors: usize,
    pub(super) len_bytes: u64,
}

pub(crate) fn run(args: &Convert, printer: &Printer) -> Result<Exit, Error> {
    let start = Instant::now();
    let opened = open(&args.source, printer)?;
    let target = store::open(&args.target)?;
    let taken = refuse_taken(args, &opened, target.as_ref())?;
    let mut weights = Weights::choose(&args.weights, opened)?;
    if args.to == Format::Hf && args.weights.keys.is_empty() {
        weights.without_averages();
    }
    let source = weights.source.as_ref();
    let names = source.names();
    let values = chosen_values(args.to, &weights.values);
    let contents = DcpContents {
        names: &names,
        values: &values,
        shard_bytes: args.shard_size,
    };
    let files = match args.to {
        Format::Hf => plan_hf(source, &names, args.shard_size)?,
        Format::Dcp => plan_dcp(source, contents)?,
    };
    let report = Report::new(args, &weights, &contents, files)?;
    if args.dry_run {
        printer.report(&report, || report.text(printer.paint()))?;
        return Ok(Exit::Done);
    }
    for key in taken {
        target.delete(&key)?;
    }
    let options = RewriteOptions {
        memory_bytes: args.memory,
        ..RewriteOptions::default()
    };
    let bar = printer.progress("convert", report.len_bytes, options.progress.clone());
    match args.to {
        Format::Hf => export_hf(source, &target, &names, args.shard_size, &options)?,
        Format::Dcp => export_dcp(source, &target, contents, &options)?,
    };
    drop(bar);
    printer.report(&report, || report.text(printer.paint()))?;
    let seconds = start.elapsed().as_secs_f64();
    printer.note(&format!(
        "wrote {} in {seconds:.1} s",
        size(report.len_bytes)
    ));
    Ok(Exit::Done)
}

/// The files of the model that is in the way, the index first; an error unless it is to be replaced.
fn refuse_taken(args: &Convert, opened: &Opened, target: &dyn Store) -> Result<Vec<String>, Error> {
    let taken = model_files(target)?;
    if taken.is_empty() {
        return Ok(taken);
    }
    let path = args.target.clone();
    let folder = match opened {
        Opened::Checkpoint { .. } => None,
        Opened::Folder(_) => Some(store::open(&args.source)?),
        Opened::File(_) => Some(store::open(&split_path(&args.source).0)?),
    };
    if folder.is_some_and(|folder| folder.url() == target.url()) {
        return Err(Error::SamePlace { path });
    }
    match args.replace {
        true => Ok(taken),
        false => Err(Error::TargetTaken { path, files: taken }),
    }
}

/// The files of a model that lie in a folder, the index first.
pub(super) fn model_files(folder: &dyn Store) -> Result<Vec<String>, Error> {
    let listing = folder.list_files("")?.into_iter();
    let keys = listing.map(|meta| meta.key);
    let mut files: Vec<String> = keys.filter(|key| is_model_file(key)).collect();
    files.sort_by_key(|key| key != INDEX_FILE && key != METADATA_FILE);
    Ok(files)
}

fn is_model_file(key: &str) -> bool {
    let part = Pattern::new("model-?????-of-?????.safetensors");
    let torch = Pattern::new("__*.distcp");
    let single = [INDEX_FILE, SINGLE_FILE, METADATA_FILE].contains(&key);
    single || part.matches(key) || torch.matches(key)
}

/// The values that the format can hold.
fn chosen_values(format: Format, values: &Values) -> Values {
    match format {
        Format::Hf => BTreeMap::new(),
        Format::Dcp => values
            .iter()
            .filter(|(_, value)| value_archive(value).is_some())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    }
}

impl Report {
    fn new(
        args: &Convert,
        weights: &Weights,
        contents: &DcpContents,
        files: Vec<PlannedFile>,
    ) -> Result<Self, Error> {
        let assets = weights.source.assets()?.into_iter().map(|(name, _)| name);
        let left_out = weights
            .values
            .keys()
            .filter(|name| !contents.values.contains_key(*name));
        Ok(Self {
            source: args.source.clone(),
            ema: args.weights.ema.clone(),
            target: args.target.clone(),
            format: match args.to {
                Format::Hf => "hf",
                Format::Dcp => "dcp",
            },
            dry_run: args.dry_run,
            tensors: contents.names.len(),
            len_bytes: files.iter().map(|file| file.len_bytes).sum(),
            files: files.into_iter().map(File::from).collect(),
            memory_bytes: args.memory + weights.buffer_bytes,
            assets: assets.collect(),
            left_out_tensors: weights.left_out,
            left_out_values: left_out.cloned().collect(),
        })
    }

    fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        let verb = if self.dry_run { "would write" } else { "wrote" };
        let what = match self.format {
            "hf" => "a Hugging Face model",
            _ => "a torch distributed checkpoint",
        };
        facts.fact(verb, format!("{what} to `{}`", self.target));
        if let Some(label) = &self.ema {
            facts.fact("average", format!("`{label}` in place of the weights"));
        }
        facts.fact("tensors", self.tensors.to_string());
        facts.fact(
            "files",
            format!(
                "{}, {}",
                plural(self.files.len(), "file"),
                size(self.len_bytes)
            ),
        );
        facts.fact("memory", format!("at most {}", size(self.memory_bytes)));
        if !self.assets.is_empty() {
            facts.fact("side files", self.assets.join(", "));
        }
        let mut left = Vec::new();
        if self.left_out_tensors > 0 {
            left.push(plural(self.left_out_tensors, "tensor"));
        }
        if !self.left_out_values.is_empty() {
            left.push(format!("values {}", self.left_out_values.join(", ")));
        }
        if !left.is_empty() {
            facts.fact("left out", left.join("; "));
        }
        format!(
            "{}\n{}",
            facts.render(paint),
            file_table(&self.files, paint)
        )
    }
}

/// The files of a model, a line each.
pub(super) fn file_table(files: &[File], paint: Paint) -> String {
    let mut table = Table::new(&["FILE", " TENSORS", " SIZE"]);
    for file in files {
        let tensors = file.tensors.to_string();
        table.row(vec![
            file.name.as_str().into(),
            tensors.into(),
            size(file.len_bytes).into(),
        ]);
    }
    table.render(paint)
}

impl From<PlannedFile> for File {
    fn from(file: PlannedFile) -> File {
        File {
            name: file.name,
            tensors: file.tensors,
            len_bytes: file.len_bytes,
        }
    }
}
