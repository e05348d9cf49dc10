//! A folder of Paddle's distributed checkpoint ("FlexCheckpoint").
//!
//! ```text
//! <id>.metadata            pickle: tensors, their pieces, and which file holds each
//! <rank>_<id>.distcp       pickle of arrays by name; or .safetensors
//! ```
//!
//! A piece is a box of its tensor, or a range of the elements of a box, counted in row-major order. Of several saves in one
//! folder the newest whose files are all there is opened.

mod metadata;

use super::array::Array;
use super::contents::Contents;
use crate::model::{DataFile, Encoding, Model, Tensor};
use crate::{Error, join, safetensors};
use cairn_sharding::Piece;
use cairn_store::Store;
use cairn_tensor::element_count;
use metadata::{Described, Metadata};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

/// How names of metadata files end.
const METADATA_SUFFIX: &str = ".metadata";

/// Whether a folder with these files was written by Paddle's distributed checkpoint.
pub(crate) fn is_folder(names: &[&str]) -> bool {
    let data = |name: &str| {
        let parts = name
            .strip_suffix(".distcp")
            .and_then(|stem| stem.split_once('_'));
        parts.is_some_and(|(rank, id)| is_number(rank) && is_number(id))
    };
    names.iter().any(|name| id_of(name).is_some() || data(name))
}

/// The number of a save, from the name of its metadata.
fn id_of(name: &str) -> Option<u64> {
    let stem = name.strip_suffix(METADATA_SUFFIX)?;
    is_number(stem).then(|| stem.parse().ok()).flatten()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Opens the folder `folder` of `store`, `""` for its root.
///
/// # Errors
/// [`Error::Unfinished`] if no save in it has all its files; what is wrong with the newest that has, otherwise.
pub fn open_folder(store: &dyn Store, folder: &str) -> Result<Model, Error> {
    let listing = store.list_files(folder)?;
    let name = |key: &str| key.rsplit('/').next().unwrap_or_default().to_string();
    let names: HashSet<String> = listing.iter().map(|meta| name(&meta.key)).collect();
    let mut ids: Vec<(u64, &String)> = names
        .iter()
        .filter_map(|name| Some((id_of(name)?, name)))
        .collect();
    ids.sort_unstable();
    let mut newest = None;
    for (_, name) in ids.into_iter().rev() {
        let key = join(folder, name);
        let metadata = Metadata::read(store, &key)?;
        let missing = metadata.files().find(|file| !names.contains(*file));
        let Some(missing) = missing else {
            return open_save(store, folder, &key, &metadata);
        };
        newest.get_or_insert(format!("`{missing}`, which `{key}` names, is missing"));
    }
    Err(Error::Unfinished {
        place: store.url(),
        reason: newest.unwrap_or_else(|| "there is no `<id>.metadata`".into()),
    })
}

fn open_save(
    store: &dyn Store,
    folder: &str,
    key: &str,
    metadata: &Metadata,
) -> Result<Model, Error> {
    let mut model = Model {
        format: "paddle-flex",
        ..Model::default()
    };
    let mut files: HashMap<&str, (usize, BTreeMap<String, Array>)> = HashMap::new();
    for (name, described) in &metadata.tensors {
        let mut tensor = Tensor {
            dtype: described.dtype,
            shape: described.shape.clone(),
            pieces: Vec::with_capacity(described.pieces.len()),
        };
        for (piece, file) in &described.pieces {
            let (index, arrays) = match files.entry(file) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let key = join(folder, file);
                    new.insert((model.files.len(), read_file(store, &key, &mut model)?))
                }
            };
            let array = arrays.get(name).cloned();
            let array = array.ok_or_else(|| {
                Error::damaged(
                    file,
                    format!("it lacks `{name}`, which `{key}` says it has"),
                )
            })?;
            check(file, name, described, piece, &array)?;
            tensor.pieces.push(array.into_piece(*index, piece.clone()));
        }
        model.tensors.insert(name.clone(), tensor);
    }
    Ok(model)
}

/// The arrays in a data file, which becomes the model's last file.
fn read_file(
    store: &dyn Store,
    key: &str,
    model: &mut Model,
) -> Result<BTreeMap<String, Array>, Error> {
    let reader = store.reader(key)?;
    model.files.push(DataFile::plain(key, reader.len()));
    if !key.ends_with(".safetensors") {
        return Ok(Contents::read(key, reader.as_ref())?.arrays);
    }
    let header = safetensors::read(store, key)?;
    let start = header.data_start;
    let array = |entry: safetensors::Entry| {
        let array = Array {
            dtype: entry.dtype,
            shape: entry.shape,
            offset: start + entry.begin,
            encoding: Encoding::RowMajor,
        };
        (entry.name, array)
    };
    Ok(header.entries.into_iter().map(array).collect())
}

/// The array must be what the metadata says. Paddle writes eight-bit floats as integers, so only the width is compared.
fn check(
    file: &str,
    name: &str,
    described: &Described,
    piece: &Piece,
    array: &Array,
) -> Result<(), Error> {
    let fits = match &piece.flat {
        None => array.shape == piece.region.extent,
        Some(range) => {
            array.encoding == Encoding::RowMajor && element_count(&array.shape) == Some(range.len())
        }
    };
    if fits && array.dtype.bits() == described.dtype.bits() {
        return Ok(());
    }
    let (dtype, shape) = (array.dtype, &array.shape);
    let reason = format!("`{name}` is {dtype:?} {shape:?} in it, the metadata says otherwise");
    Err(Error::damaged(file, reason))
}
