//! What a command writes, in any format: planned first, then written.

use super::weights::{Values, Weights};
use crate::args::Format;
use crate::error::Error;
use crate::open::target_run;
use crate::table::{Paint, Table};
use crate::units::size;
use cairn::checkpoint::{
    DcpContents, FileContents, FileFormat, IfCommitted, Layout, NewCheckpoint, PlannedFile,
    RewriteOptions, SaveOptions, SavePlan, ShardRules, export_dcp, export_file, export_hf,
    export_safetensors, plan_dcp, plan_file, plan_hf, plan_safetensors, rewrite, split_path,
};
use cairn::formats::torch_zip::value_archive;
use cairn::sharding::Mesh;
use cairn::store::{self, Store};
use serde::Serialize;
use std::sync::Arc;

/// A place to write to, and in which form.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) path: String,
    pub(crate) format: Format,
    /// The most data in one file, where a format has several.
    pub(crate) shard_bytes: u64,
    /// The step, where a format has steps; that of the source if not given.
    pub(crate) step: Option<u64>,
    /// Whether the result goes to the place of what is there.
    pub(crate) replace: bool,
}

/// A file of a model.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct File {
    name: String,
    tensors: usize,
    len_bytes: u64,
}

/// Weights on their way to a target.
pub(crate) struct Output<'a> {
    weights: &'a Weights,
    names: Vec<&'a str>,
    shard_bytes: u64,
    store: Arc<dyn Store>,
    form: Form,
    pub(crate) files: Vec<File>,
}

/// What is written.
enum Form {
    Hf,
    Dcp(Values),
    Safetensors(String),
    File(FileFormat, String, Values),
    Step(Box<NewCheckpoint>),
}

impl Format {
    /// Its name, as `--to` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Hf => "hf",
            Format::Safetensors => "safetensors",
            Format::Dcp => "dcp",
            Format::Torch => "torch",
            Format::Paddle => "paddle",
            Format::Pdiparams => "pdiparams",
            Format::Cairn => "cairn",
        }
    }
}

impl Target {
    /// The folder that gets the files, and the name of the file if it is one.
    fn store(&self) -> Result<(Arc<dyn Store>, Option<String>), Error> {
        Ok(match self.format {
            Format::Cairn => (target_run(&self.path)?, None),
            Format::Safetensors | Format::Torch | Format::Paddle | Format::Pdiparams => {
                let (folder, name) = split_path(&self.path);
                (store::open(&folder)?, Some(name))
            }
            Format::Hf | Format::Dcp => (store::open(&self.path)?, None),
        })
    }

    /// What it is, and where.
    pub(crate) fn text(&self, step: Option<u64>) -> String {
        let path = &self.path;
        match (self.format, step) {
            (Format::Cairn, step) => format!("step {} of `{path}`", step.unwrap_or(0)),
            (Format::Hf, _) => format!("a Hugging Face model to `{path}`"),
            (Format::Dcp, _) => format!("a torch distributed checkpoint to `{path}`"),
            (Format::Safetensors, _) => format!("a safetensors file to `{path}`"),
            (Format::Torch, _) => format!("a torch file to `{path}`"),
            (Format::Paddle, _) => format!("a Paddle file to `{path}`"),
            (Format::Pdiparams, _) => format!("the parameters of a Paddle program to `{path}`"),
        }
    }
}

impl<'a> Output<'a> {
    /// Plans the files of `weights` in a target.
    pub(crate) fn plan(target: &Target, weights: &'a Weights) -> Result<Self, Error> {
        if target.format == Format::Cairn {
            return Self::plan_step(target, weights, new_checkpoint(target, weights)?);
        }
        let source = weights.source.as_ref();
        let names = source.names();
        let (store, file) = target.store()?;
        let (form, files) = match (target.format, file) {
            (Format::Dcp, _) => {
                let values = torch_values(&weights.values);
                let contents = DcpContents {
                    names: &names,
                    values: &values,
                    shard_bytes: target.shard_bytes,
                };
                let files = plan_dcp(source, contents)?;
                (Form::Dcp(values), files)
            }
            (Format::Safetensors, Some(key)) => {
                let files = plan_safetensors(source, &key, &names)?;
                (Form::Safetensors(key), files)
            }
            (format, Some(key)) => {
                let (format, values) = file_format(format, &weights.values);
                let contents = FileContents {
                    key: &key,
                    names: &names,
                    values: &values,
                };
                let files = plan_file(source, format, contents)?;
                (Form::File(format, key, values), files)
            }
            _ => (Form::Hf, plan_hf(source, &names, target.shard_bytes)?),
        };
        Ok(Self {
            weights,
            names,
            shard_bytes: target.shard_bytes,
            store,
            form,
            files: files.into_iter().map(File::from).collect(),
        })
    }

    /// Plans the files of a step.
    pub(crate) fn plan_step(
        target: &Target,
        weights: &'a Weights,
        new: NewCheckpoint,
    ) -> Result<Self, Error> {
        Ok(Self {
            weights,
            names: weights.source.names(),
            shard_bytes: target.shard_bytes,
            store: target.store()?.0,
            files: step_files(&new)?.into_iter().map(File::from).collect(),
            form: Form::Step(Box::new(new)),
        })
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len_bytes).sum()
    }

    pub(crate) fn tensors(&self) -> usize {
        self.names.len()
    }

    /// The step that is written, if one is.
    pub(crate) fn step(&self) -> Option<u64> {
        match &self.form {
            Form::Step(new) => Some(new.step),
            _ => None,
        }
    }

    /// The side files that come along.
    pub(crate) fn assets(&self) -> Result<Vec<String>, Error> {
        if matches!(self.form, Form::Safetensors(_) | Form::File(..)) {
            return Ok(Vec::new());
        }
        let assets = self.weights.source.assets()?.into_iter();
        Ok(assets.map(|(name, _)| name).collect())
    }

    /// The values that the format has no place for.
    pub(crate) fn lost_values(&self) -> Vec<String> {
        let values = self.weights.values.keys();
        let is_lost = |name: &&String| match &self.form {
            Form::Step(_) => false,
            Form::Dcp(values) | Form::File(_, _, values) => !values.contains_key(*name),
            Form::Hf | Form::Safetensors(_) => true,
        };
        values.filter(is_lost).cloned().collect()
    }

    /// Writes everything, or with `dry_run` finds out whether it could.
    pub(crate) fn write(&self, options: &RewriteOptions) -> Result<(), Error> {
        let (source, names) = (self.weights.source.as_ref(), &self.names);
        match &self.form {
            Form::Step(new) => {
                rewrite(source, &self.store, new, options)?;
            }
            Form::Hf => {
                export_hf(source, &self.store, names, self.shard_bytes, options)?;
            }
            Form::Safetensors(key) => {
                export_safetensors(source, &self.store, key, names, options)?;
            }
            Form::File(format, key, values) => {
                let contents = FileContents { key, names, values };
                export_file(source, &self.store, *format, contents, options)?;
            }
            Form::Dcp(values) => {
                let contents = DcpContents {
                    names,
                    values,
                    shard_bytes: self.shard_bytes,
                };
                export_dcp(source, &self.store, contents, options)?;
            }
        }
        Ok(())
    }
}

/// The kind of file, and the values that it can hold.
fn file_format(format: Format, values: &Values) -> (FileFormat, Values) {
    match format {
        Format::Paddle => (FileFormat::Paddle, torch_values(values)),
        Format::Pdiparams => (FileFormat::PaddleInference, Values::new()),
        _ => (FileFormat::Torch, torch_values(values)),
    }
}

/// The values that a pickle can hold.
fn torch_values(values: &Values) -> Values {
    let readable = values
        .iter()
        .filter(|(_, value)| value_archive(value).is_some());
    readable
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// A step for one rank, with everything that comes with the weights.
pub(super) fn new_checkpoint(target: &Target, weights: &Weights) -> Result<NewCheckpoint, Error> {
    let source = weights.source.as_ref();
    let tensors = ShardRules::parse(Mesh::single(), &[] as &[&str])?.lay_out(source)?;
    Ok(NewCheckpoint {
        step: target.step.or(weights.step).unwrap_or(0),
        world: 1,
        tensors,
        aliases: source.aliases(),
        values: weights.values.clone(),
        save: SaveOptions {
            tags: weights.tags.clone(),
            if_committed: match target.replace {
                true => IfCommitted::Replace,
                false => IfCommitted::Refuse,
            },
            assets: source.assets()?.into_iter().collect(),
        },
    })
}

fn step_files(new: &NewCheckpoint) -> Result<Vec<PlannedFile>, Error> {
    let layout = Layout::new(new.tensors.clone(), new.aliases.clone());
    let plan = SavePlan::new(&layout, new.world)?;
    let file = |(rank, writer): (usize, &cairn::checkpoint::PlannedWriter)| PlannedFile {
        name: format!("{rank:05}.safetensors"),
        tensors: writer.items,
        len_bytes: writer.len_bytes,
    };
    Ok(plan.writers.iter().enumerate().map(file).collect())
}

/// The files of a model, a line each.
pub(crate) fn file_table(files: &[File], paint: Paint) -> String {
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
