//! Small models in a temporary folder.

use cairn_formats::paddle::pdparams;
use cairn_formats::safetensors::{Entry, encode, read};
use cairn_merge::{Config, Error, Merge, Options, WriteOptions};
use cairn_store::{Local, Memory, Store};
use cairn_tensor::DType;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A folder with models in it.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    /// With the models `base`, `a`, `b` of `layers` layers.
    pub(crate) fn with_models(layers: usize) -> Self {
        let place = Self::new();
        for (seed, name) in ["base", "a", "b"].into_iter().enumerate() {
            place.model(name, &tensors(seed, layers));
            place.file(name, "tokenizer.json", b"{\"of\": \"the model\"}");
            let config =
                json!({"model_type": "llama", "num_hidden_layers": layers, "vocab_size": 5});
            place.file(name, "config.json", config.to_string().as_bytes());
        }
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, model: &str, name: &str, bytes: &[u8]) {
        let folder = self.path().join(model);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    }

    pub(crate) fn model(&self, name: &str, tensors: &Tensors) {
        self.file(name, "model.safetensors", &safetensors(tensors));
    }

    /// A config in which `$` stands for the folder.
    pub(crate) fn config(&self, text: &str) -> Result<Config, Error> {
        Config::parse(&text.replace('$', self.path().to_str().unwrap()))
    }

    pub(crate) fn merge(&self, text: &str) -> Result<Merge, Error> {
        self.merge_with(text, Options::default())
    }

    pub(crate) fn merge_with(&self, text: &str, options: Options) -> Result<Merge, Error> {
        Merge::new(self.config(text)?, options)
    }

    /// Merges into a store in memory.
    pub(crate) fn merged(&self, text: &str) -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let merge = self.merge(text).unwrap_or_else(|error| panic!("{error}"));
        merge.write(&store, &fresh()).unwrap();
        store
    }

    pub(crate) fn store(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(Local::new(self.path().join(name)))
    }
}

pub(crate) fn fresh() -> WriteOptions {
    WriteOptions {
        resume: false,
        replace: false,
        dry_run: false,
        progress: Arc::default(),
    }
}

pub(crate) fn resume() -> WriteOptions {
    WriteOptions {
        resume: true,
        ..fresh()
    }
}

/// The tensors of a small model.
pub(crate) fn tensors(seed: usize, layers: usize) -> Tensors {
    let mut tensors = Tensors::new();
    let mut add = |name: String, shape: &[usize]| {
        let count: usize = shape.iter().product();
        let start = name.len() * 7 + seed * 31;
        let value = |at: usize| ((start + at * 13) % 64) as f32 / 64.0 - 0.5;
        tensors.insert(name, (shape.to_vec(), (0..count).map(value).collect()));
    };
    add("model.embed_tokens.weight".into(), &[5, 4]);
    add("model.norm.weight".into(), &[4]);
    add("lm_head.weight".into(), &[5, 4]);
    for layer in 0..layers {
        add(format!("model.layers.{layer}.mlp.up_proj.weight"), &[6, 4]);
        add(format!("model.layers.{layer}.input_layernorm.weight"), &[4]);
    }
    tensors
}

pub(crate) fn safetensors(tensors: &Tensors) -> Vec<u8> {
    let mut entries = Vec::new();
    let mut data = Vec::new();
    for (name, (shape, values)) in tensors {
        let begin = data.len() as u64;
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        entries.push(Entry {
            name: name.clone(),
            dtype: DType::F32,
            shape: shape.clone(),
            begin,
            end: data.len() as u64,
        });
    }
    [encode(&entries, &[], 8).unwrap(), data].concat()
}

/// A file as `paddle.save` writes it.
pub(crate) fn pdparams(tensors: &Tensors) -> Vec<u8> {
    let described = tensors.iter();
    let described =
        described.map(|(name, (shape, _))| (name.as_str(), DType::F32, shape.as_slice()));
    let frames = pdparams::frames(&described.collect::<Vec<_>>(), &BTreeMap::new()).unwrap();
    let (last, frames) = frames.split_last().unwrap();
    let mut file = Vec::new();
    for (frame, (_, values)) in frames.iter().zip(tensors.values()) {
        file.extend(frame);
        file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    [file, last.clone()].concat()
}

/// Every tensor of `f32` in the data files of a folder.
pub(crate) fn loaded(store: &dyn Store) -> Tensors {
    let mut tensors = Tensors::new();
    for meta in store.list_files("").unwrap() {
        if !meta.key.ends_with(".safetensors") {
            continue;
        }
        let header = read(store, &meta.key).unwrap();
        let bytes = store.get(&meta.key).unwrap();
        let data = &bytes[usize::try_from(header.data_start).unwrap()..];
        for entry in header.entries {
            assert_eq!(entry.dtype, DType::F32);
            let range = usize::try_from(entry.begin).unwrap()..usize::try_from(entry.end).unwrap();
            let values = data[range].as_chunks::<4>().0;
            let values = values
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect();
            tensors.insert(entry.name, (entry.shape, values));
        }
    }
    tensors
}

/// Every file of a folder with its bytes.
pub(crate) fn files(store: &dyn Store) -> BTreeMap<String, Vec<u8>> {
    let keys = store.list("").unwrap().into_iter().map(|meta| meta.key);
    keys.map(|key| (key.clone(), store.get(&key).unwrap()))
        .collect()
}

pub(crate) fn json_file(store: &dyn Store, key: &str) -> Value {
    serde_json::from_slice(&store.get(key).unwrap()).unwrap()
}
