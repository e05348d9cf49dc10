//! What Paddle and the trainers built on it write.
//!
//! | files | module | names |
//! |---|---|---|
//! | `.pdparams`, `.pdopt`, `.pdtensor` | [`pdparams`]: one pickle of numpy arrays | keys joined with `.` |
//! | `.pdiparams` beside a `.json` or `.pdmodel` program | [`pdiparams`]: raw tensors one after another | those of the program |
//! | `<id>.metadata`, `<rank>_<id>.distcp` | [`flex`]: shards of a distributed state | as saved |
//! | `model-…`, `optimizer-…`, `master_weights-….safetensors` | [`unified`]: whole tensors | `model.…`, `optim.state.…` |
//!
//! Pickles are read as inert records, and arrays stay where they lie in the file. Paddle has no unsigned integers of 16
//! bits and stores `bfloat16` as such, so an array of `uint16` is `bf16` here, as it is for `paddle.load`. An eight-bit
//! float is stored as `int8` without a trace of what it was, and is `i8` here and there.

mod array;
mod contents;
mod dtypes;
pub mod flex;
pub mod pdiparams;
pub mod pdparams;
pub mod program;
mod protobuf;
pub mod unified;

use crate::Error;
use crate::hf;
use crate::model::Model;
use cairn_store::Store;

/// The name under which Paddle's trainers keep a model in one file.
pub const MODEL_FILE: &str = "model_state.pdparams";

/// Opens a folder with these files, if Paddle wrote it.
pub(crate) fn open_folder(store: &dyn Store, names: &[&str]) -> Option<Result<Model, Error>> {
    if flex::is_folder(names) {
        return Some(flex::open_folder(store, ""));
    }
    if unified::is_folder(names) {
        return Some(unified::open_folder(store));
    }
    if names.iter().any(|name| name.ends_with(".safetensors")) {
        return None;
    }
    let alone = |end: &str| {
        let mut found = names.iter().filter(|name| name.ends_with(end));
        found.next().filter(|_| found.next().is_none())
    };
    let model = names.iter().find(|name| **name == MODEL_FILE);
    let key = model.or_else(|| alone(".pdparams").or_else(|| alone(".pdiparams")))?;
    Some(open_file(store, key)?.and_then(|model| with_side_files(store, model)))
}

/// The model of a file that has a folder to itself, with the small files around it.
fn with_side_files(store: &dyn Store, mut model: Model) -> Result<Model, Error> {
    let mut assets = hf::assets(&store.list_files("")?);
    assets.retain(|name| !model.assets.contains(name));
    model.assets.extend(assets);
    Ok(model)
}

/// Opens the file `key`, if its name is one that Paddle gives.
pub(crate) fn open_file(store: &dyn Store, key: &str) -> Option<Result<Model, Error>> {
    match key.rsplit_once('.')?.1 {
        "pdparams" | "pdopt" | "pdtensor" => Some(pdparams::open_file(store, key)),
        "pdiparams" => Some(pdiparams::open_file(store, key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
