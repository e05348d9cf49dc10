//! A checkpoint of Orbax.
//!
//! ```text
//! <step>/_CHECKPOINT_METADATA              which items there are
//! <step>/<item>/_METADATA                  what the state is made of
//! <step>/<item>/_strings.json              strings in it
//! <step>/<item>/params.w/.zarray, 0.0 …    arrays, each a folder of zarr …
//! <step>/<item>/manifest.ocdbt, d/…        … or all of them in one tree of OCDBT
//! <step>/<item>/metadata                   an item that is JSON
//! ```
//!
//! Keys of nested containers are joined with `.`, as Orbax itself names its arrays. The item `default` has no name of its
//! own, that of others stands in front. Numbers that were Python's are plain values.

mod scalar;
#[cfg(test)]
mod tests;

use crate::entries::Entries;
use crate::model::Model;
use crate::zarr::{self, Arrays};
use crate::{Error, join, ocdbt, plain};
use cairn_store::Store;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// What a state is made of.
const TREE_FILE: &str = "_METADATA";
/// What a step is made of.
const STEP_FILE: &str = "_CHECKPOINT_METADATA";
/// Strings in a state.
const STRINGS_FILE: &str = "_strings.json";
/// An item that is JSON.
const JSON_FILE: &str = "metadata";
/// Written once a step is complete, where folders cannot be renamed.
const COMMIT_FILE: &str = "commit_success.txt";
/// The item whose name is left out.
const DEFAULT_ITEM: &str = "default";

/// Whether a folder with these files is a step or an item of one.
pub(crate) fn is_folder(names: &[&str]) -> bool {
    let ours = [TREE_FILE, STEP_FILE, ocdbt::MANIFEST_FILE];
    ours.iter().any(|name| names.contains(name))
}

/// The folder of the newest step of the run that `store` is rooted at, if Orbax wrote one there.
pub(crate) fn latest(store: &dyn Store) -> Result<Option<String>, Error> {
    let folders = store.list_folders("")?;
    let mut steps: Vec<(u64, &String)> = folders
        .iter()
        .filter_map(|name| Some((name.rsplit('_').next()?.parse().ok()?, name)))
        .collect();
    steps.sort();
    for (_, folder) in steps.into_iter().rev() {
        for file in [STEP_FILE, TREE_FILE] {
            if store.head(&join(folder, file))?.is_some() {
                return Ok(Some(folder.clone()));
            }
        }
    }
    Ok(None)
}

/// Opens the step, or item of a step, in the folder `folder` of `store`, `""` for its root.
///
/// # Errors
/// If it was never finished, or is not as Orbax writes it.
pub fn open_folder(store: &dyn Store, folder: &str) -> Result<Model, Error> {
    let mut model = Model {
        format: "orbax",
        ..Model::default()
    };
    let has = |folder: &str, name: &str| store.head(&join(folder, name)).map(|meta| meta.is_some());
    if has(folder, STEP_FILE)? {
        let step = json_file(store, &join(folder, STEP_FILE))?;
        if step["commit_timestamp_nsecs"].is_null() && !has(folder, COMMIT_FILE)? {
            return Err(Error::Unfinished {
                place: join(folder, STEP_FILE),
                reason: "it has no time of commit".into(),
            });
        }
    }
    if has(folder, TREE_FILE)? || has(folder, ocdbt::MANIFEST_FILE)? {
        add_state(store, folder, "", &mut model)?;
        return Ok(model);
    }
    for item in store.list_folders(folder)? {
        let place = join(folder, &item);
        let prefix = match item.as_str() {
            DEFAULT_ITEM => String::new(),
            _ => format!("{item}."),
        };
        if has(&place, TREE_FILE)? || has(&place, ocdbt::MANIFEST_FILE)? {
            add_state(store, &place, &prefix, &mut model)?;
        } else if has(&place, JSON_FILE)? {
            let value = json_file(store, &join(&place, JSON_FILE))?;
            model.values.insert(item, value);
        }
    }
    if model.tensors.is_empty() && model.values.is_empty() {
        return Err(Error::Unsupported {
            file: join(folder, STEP_FILE),
            reason: "none of its items is a state or JSON".into(),
            hint: "states are read as Orbax writes them since it has `_METADATA`",
        });
    }
    Ok(model)
}

fn json_file(store: &dyn Store, key: &str) -> Result<Value, Error> {
    let parsed = serde_json::from_slice(&store.get(key)?);
    parsed.map_err(|error| Error::damaged(key, format!("it is not JSON: {error}")))
}

/// Adds a state to a model, under names that begin with `prefix`.
fn add_state(
    store: &dyn Store,
    folder: &str,
    prefix: &str,
    model: &mut Model,
) -> Result<(), Error> {
    let entries = match store.head(&join(folder, ocdbt::MANIFEST_FILE))? {
        Some(_) => ocdbt::entries(store, folder)?,
        None => Entries::of_folder(store, folder)?,
    };
    let tree = match store.head(&join(folder, TREE_FILE))? {
        Some(_) => json_file(store, &join(folder, TREE_FILE))?,
        None => Value::Null,
    };
    let strings = match store.head(&join(folder, STRINGS_FILE))? {
        Some(_) => json_file(store, &join(folder, STRINGS_FILE))?,
        None => Value::Null,
    };
    // Where nothing is said, zeros may be missing: Orbax once left them out without a word.
    let sparse = tree["store_array_data_equal_to_fill_value"] != true;
    let mut arrays = Arrays::new(store, &entries, sparse);
    let mut left: BTreeSet<String> = zarr::names(&entries).into_iter().collect();
    for (name, kind) in leaves(&tree["tree_metadata"]) {
        let is_array =
            left.remove(&name) || ["jax.Array", "np.ndarray", "scalar"].contains(&kind.as_str());
        let ours = format!("{prefix}{name}");
        if !is_array {
            model.values.insert(ours, value(&name, &kind, &strings));
            continue;
        }
        let tensor = arrays.tensor(&name, model)?;
        let number = match kind == "scalar" {
            true => scalar::number(store, model, &tensor)?,
            false => None,
        };
        match number {
            Some(number) => drop(model.values.insert(ours, number)),
            None => drop(model.tensors.insert(ours, tensor)),
        }
    }
    for name in left {
        let tensor = arrays.tensor(&name, model)?;
        model.tensors.insert(format!("{prefix}{name}"), tensor);
    }
    Ok(())
}

/// A leaf that is no array.
fn value(name: &str, kind: &str, strings: &Value) -> Value {
    match kind {
        "None" => Value::Null,
        "Dict" => json!({}),
        "List" => json!([]),
        "Tuple" => json!({"$tuple": []}),
        "string" => strings[name].clone(),
        other => plain::opaque(other),
    }
}

/// The name and kind of every leaf of a state.
fn leaves(tree: &Value) -> Vec<(String, String)> {
    let empty = Map::new();
    let leaf = |leaf: &Value| {
        let keys = leaf["key_metadata"].as_array()?.iter();
        let keys: Option<Vec<&str>> = keys.map(|key| key["key"].as_str()).collect();
        let kind = leaf["value_metadata"]["value_type"].as_str()?;
        Some((keys?.join("."), kind.to_string()))
    };
    let leaves = tree.as_object().unwrap_or(&empty).values();
    leaves.filter_map(leaf).collect()
}
