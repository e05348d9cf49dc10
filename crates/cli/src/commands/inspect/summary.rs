//! What a checkpoint or model contains, on one screen.

use super::Tensor;
use super::patterns::{Pattern, patterns, table};
use crate::args::Inspect;
use crate::error::Error;
use crate::open::Opened;
use crate::table::{Paint, Style, Table, cell};
use crate::units::{age, count, plural, size};
use cairn::checkpoint::tags::tags_of;
use cairn::checkpoint::{DeltaSummary, Manifest, PackedSummary, is_data_file, step_folder};
use cairn::formats::Model;
use cairn::store::Store;
use cairn::store::redact;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The longest value printed; longer ones are cut.
const MAX_VALUE_CHARS: usize = 40;

#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    path: String,
    format: &'static str,
    step: Option<u64>,
    latest: bool,
    created: Option<String>,
    #[serde(skip)]
    age: Option<Duration>,
    program: Option<String>,
    attempt: Option<String>,
    writers: Option<usize>,
    files: usize,
    len_bytes: u64,
    /// What the step has of its own and what it refers to, if it refers to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<DeltaSummary>,
    /// How many bytes its data files are stored in, if they are compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    packed: Option<PackedSummary>,
    tensors: usize,
    elements: u64,
    tensor_bytes: u64,
    meshes: Vec<String>,
    tags: Vec<String>,
    values: BTreeMap<String, Value>,
    aliases: BTreeMap<String, String>,
    assets: BTreeMap<String, u64>,
    patterns: Vec<Pattern>,
    /// Every tensor, with `--tree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<Vec<Tensor>>,
}

impl Summary {
    pub(super) fn new(args: &Inspect, opened: &Opened, tensors: &[Tensor]) -> Result<Self, Error> {
        let meshes: BTreeSet<&String> = tensors.iter().filter_map(|t| t.mesh.as_ref()).collect();
        let elements =
            |tensor: &Tensor| cairn::tensor::element_count(&tensor.shape).unwrap_or(0) as u64;
        let common = Self {
            path: redact(&args.path),
            tensors: tensors.len(),
            elements: tensors.iter().map(elements).sum(),
            tensor_bytes: tensors.iter().map(|tensor| tensor.len_bytes).sum(),
            meshes: meshes.into_iter().cloned().collect(),
            aliases: opened.source().aliases(),
            patterns: patterns(tensors),
            tree: args.tree.then(|| tensors.to_vec()),
            ..Self::default()
        };
        match opened {
            Opened::Checkpoint {
                run,
                checkpoint,
                latest,
            } => common.of_checkpoint(run.as_ref(), checkpoint.manifest(), *latest),
            Opened::Folder(model) | Opened::File(model) => Ok(common.of_model(model.model())),
        }
    }

    fn of_checkpoint(
        self,
        run: &dyn Store,
        manifest: &Manifest,
        latest: bool,
    ) -> Result<Self, Error> {
        let folder = step_folder(manifest.step);
        // One listing, because in a bucket every look is a request.
        let found = run.list(&folder)?;
        let attempt = format!("{folder}/{}/", manifest.attempt);
        let files = found.iter().filter(|meta| meta.key.starts_with(&attempt));
        let assets = manifest
            .assets
            .iter()
            .map(|(name, entry)| (name.clone(), entry.len_bytes));
        Ok(Self {
            format: "cairn",
            step: Some(manifest.step),
            latest,
            created: Some(manifest.created.clone()),
            age: manifest.age(),
            program: Some(manifest.program.clone()),
            attempt: Some(manifest.attempt.clone()),
            writers: Some(manifest.writers()),
            files: files.filter(|meta| is_data_file(&meta.key)).count(),
            len_bytes: manifest.len_bytes,
            delta: manifest.delta.clone(),
            packed: manifest.packed,
            tags: tags_of(run, manifest)?,
            values: manifest.values.clone(),
            assets: assets.collect(),
            ..self
        })
    }

    fn of_model(self, model: &Model) -> Self {
        Self {
            format: model.format,
            values: model.values.clone(),
            files: model.files.len(),
            len_bytes: model.files.iter().map(|file| file.len_bytes).sum(),
            // Their lengths are not looked up.
            assets: model.assets.iter().map(|name| (name.clone(), 0)).collect(),
            ..self
        }
    }

    pub(super) fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        let format = match self.format {
            "cairn" => self.version(),
            "hf" => "Hugging Face model".to_string(),
            "dcp" => "torch distributed checkpoint".to_string(),
            "megatron" => "Megatron checkpoint".to_string(),
            other => format!("{other} file"),
        };
        facts.fact("format", cell(Style::Bold, format));
        self.history(&mut facts);
        let mut files = vec![plural(self.files, "file"), size(self.len_bytes)];
        files.extend(self.writers.map(|writers| plural(writers, "writer")));
        files.extend(self.delta.as_ref().map(|delta| {
            let bases = delta.bases.values().map(|files| files.len()).sum();
            let (own, bases) = (size(delta.stored_bytes), plural(bases, "file"));
            format!("{own} of its own, the rest in {bases} of other attempts")
        }));
        let packed = self.packed.map(|packed| size(packed.stored_bytes));
        files.extend(packed.map(|stored| format!("stored in {stored}")));
        facts.fact("files", files.join(", "));
        facts.fact(
            "tensors",
            format!(
                "{}, {} elements, {}",
                self.tensors,
                count(self.elements),
                size(self.tensor_bytes)
            ),
        );
        for mesh in &self.meshes {
            facts.fact("mesh", mesh.as_str());
        }
        self.extras(&mut facts);
        let table = table(&self.patterns, self.meshes.len() > 1, paint);
        format!("{}\n{table}", facts.render(paint))
    }

    /// The version of the format that a checkpoint needs, and why.
    fn version(&self) -> String {
        let why = match (&self.delta, &self.packed) {
            (None, None) => return "Cairn checkpoint, version 1".into(),
            (Some(_), None) => "a delta",
            (None, Some(_)) => "compressed",
            (Some(_), Some(_)) => "a compressed delta",
        };
        format!("Cairn checkpoint, version 2, {why}")
    }

    fn history(&self, facts: &mut Table) {
        if let Some(step) = self.step {
            let latest = if self.latest { " (latest)" } else { "" };
            facts.fact("step", format!("{step}{latest}"));
        }
        if let (Some(created), Some(program)) = (&self.created, &self.program) {
            let ago = self
                .age
                .map_or(String::new(), |ago| format!(" ({} ago)", age(ago)));
            facts.fact("saved", format!("{created}{ago} by {program}"));
        }
    }

    fn extras(&self, facts: &mut Table) {
        let quoted = |(name, of): (&String, &String)| format!("{name} = {of}");
        let lists = [
            ("tags", self.tags.clone()),
            (
                "values",
                self.values
                    .iter()
                    .map(|(name, value)| short(name, value))
                    .collect(),
            ),
            ("aliases", self.aliases.iter().map(quoted).collect()),
            (
                "side files",
                self.assets.keys().cloned().collect::<Vec<_>>(),
            ),
        ];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            facts.fact(name, list.join(", "));
        }
    }
}

fn short(name: &str, value: &Value) -> String {
    let text = value.to_string();
    let cut: String = text.chars().take(MAX_VALUE_CHARS).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{name} = {cut}{more}")
}
