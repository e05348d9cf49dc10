//! A training checkpoint of Paddle's trainers ("Unified Checkpoint"): whole tensors in safetensors files.
//!
//! ```text
//! model-00001-of-0000N.safetensors            model.safetensors.index.json
//! optimizer-00001-of-0000N.safetensors        optimizer.safetensors.index.json        <name>/moment1_0 …
//! master_weights-00001-of-0000N.safetensors   master_weights.safetensors.index.json   <name>, f32
//! scheduler.pdparams                          the state of the learning rate
//! ```
//!
//! Here they have the names that the Python package gives the same state as `{"model": layer, "optim": optimizer}`, and can
//! be loaded into one: `model.<name>`, `optim.state.<name>.moment1_0`, `optim.state.<name>.master_weight` and the value
//! `optim.LR_Scheduler`. A folder with a model only is a Hugging Face folder, and its names are as they are.

use super::pdparams;
use crate::model::Model;
use crate::{Error, hf};
use cairn_store::Store;
use serde_json::Value;

/// The state of the learning rate.
const SCHEDULER_FILE: &str = "scheduler.pdparams";

/// From a name in a file to a name in the model.
type Rename = fn(&str) -> String;

/// The kinds of tensors, which the names of files begin with.
const KINDS: [(&str, Rename); 3] = [
    ("model", |name| format!("model.{name}")),
    ("optimizer", accumulator),
    ("master_weights", |name| {
        format!("optim.state.{name}.master_weight")
    }),
];

fn accumulator(name: &str) -> String {
    match name.rsplit_once('/') {
        Some((parameter, kind)) => format!("optim.state.{parameter}.{kind}"),
        None => format!("optim.state.{name}"),
    }
}

/// Whether a folder with these files holds more of a training state than its model.
pub(crate) fn is_folder(names: &[&str]) -> bool {
    let beside_the_model = &KINDS[1..];
    beside_the_model
        .iter()
        .any(|(kind, _)| names.iter().any(|name| is_data(kind, name)))
}

fn is_data(kind: &str, name: &str) -> bool {
    let middle = name
        .strip_prefix(kind)
        .and_then(|rest| rest.strip_suffix(".safetensors"));
    middle.is_some_and(|middle| middle.is_empty() || middle.starts_with('-'))
}

/// Opens the folder that `store` is rooted at.
///
/// # Errors
/// If a file is invalid, an index and its files disagree, or the optimizer's state was kept rank by rank.
pub fn open_folder(store: &dyn Store) -> Result<Model, Error> {
    let listing = store.list_files("")?;
    let names: Vec<&str> = listing.iter().map(|meta| meta.key.as_str()).collect();
    let mut model = Model {
        format: "paddle-unified",
        ..Model::default()
    };
    for (kind, rename) in KINDS {
        let index = format!("{kind}.safetensors.index.json");
        let part = if names.contains(&index.as_str()) {
            hf::open_index(store, &index)?
        } else {
            let data = names.iter().copied().filter(|name| is_data(kind, name));
            hf::open_files(store, &data.collect::<Vec<_>>())?
        };
        add(&mut model, part, rename);
    }
    if names.contains(&SCHEDULER_FILE) {
        let scheduler = pdparams::open_file(store, SCHEDULER_FILE)?;
        let state = Value::Object(scheduler.values.into_iter().collect());
        model.values.insert("optim.LR_Scheduler".into(), state);
    }
    model.assets = hf::assets(&listing);
    Ok(model)
}

fn add(model: &mut Model, part: Model, rename: Rename) {
    let first = model.files.len();
    model.files.extend(part.files);
    for (name, mut tensor) in part.tensors {
        for piece in &mut tensor.pieces {
            piece.file += first;
        }
        model.tensors.insert(rename(&name), tensor);
    }
}
