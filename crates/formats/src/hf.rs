//! A Hugging Face model folder, or safetensors files, as a list of tensors.
//!
//! Torch can save shards in the same form: each file then holds a box of every tensor, and says in its header where the
//! box begins (`DCP_SHARDING_INFO`). Such files are joined.

use crate::model::{DataFile, Encoding, Model, PieceAt, Tensor};
use crate::safetensors::{Entry, Header};
use crate::{Error, numbered, safetensors, torch_zip};
use cairn_sharding::{Piece, Region};
use cairn_store::{ObjectMeta, Store};
use serde::Deserialize;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The index file of a model split over several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// The file of a model in one piece.
pub const SINGLE_FILE: &str = "model.safetensors";
/// The file of an adapter of peft.
pub const ADAPTER_FILE: &str = "adapter_model.safetensors";
/// The index of a model split over several torch archives.
pub const TORCH_INDEX_FILE: &str = "pytorch_model.bin.index.json";
/// The file of a model in one torch archive.
pub const TORCH_FILE: &str = "pytorch_model.bin";
/// The largest side file (configuration, tokenizer) that travels with a model.
pub const MAX_ASSET_BYTES: u64 = 64 << 20;

/// The entry of a header that says where the boxes in a file begin.
const SHARDING_KEY: &str = "DCP_SHARDING_INFO";

#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

impl Index {
    /// Each tensor with its file.
    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.weight_map
            .iter()
            .map(|(name, file)| (name.as_str(), file.as_str()))
    }
}

#[derive(Deserialize)]
struct Shard {
    saved_offsets: Vec<usize>,
}

/// Opens the model folder that `store` is rooted at.
///
/// Uses `model.safetensors.index.json` if there is one, then `model.safetensors`, then every other `.safetensors` file,
/// then the torch archives of older models, with or without their index.
///
/// # Errors
/// If there is no model, a file is invalid, or the index and the files disagree.
pub fn open_folder(store: &dyn Store) -> Result<Model, Error> {
    let listing = store.list_files("")?;
    let names: Vec<&str> = listing.iter().map(|meta| meta.key.as_str()).collect();
    let mut model = open_names(store, &names)?;
    model.format = "hf";
    model.assets = assets(&listing);
    Ok(model)
}

/// The keys of the side files that travel with a model.
pub(crate) fn assets(listing: &[ObjectMeta]) -> Vec<String> {
    listing
        .iter()
        .filter(|meta| is_asset(&meta.key) && meta.len <= MAX_ASSET_BYTES)
        .map(|meta| meta.key.clone())
        .collect()
}

/// Opens the safetensors files that an index names.
pub(crate) fn open_index(store: &dyn Store, index_file: &str) -> Result<Model, Error> {
    from_index(store, index_file, open_files)
}

fn open_names(store: &dyn Store, names: &[&str]) -> Result<Model, Error> {
    if names.contains(&INDEX_FILE) {
        return open_index(store, INDEX_FILE);
    }
    if names.contains(&SINGLE_FILE) {
        return open_files(store, &[SINGLE_FILE]);
    }
    let safetensors = |name: &&&str| name.ends_with(".safetensors");
    let files: Vec<&str> = names.iter().filter(safetensors).copied().collect();
    if !files.is_empty() {
        numbered::check_complete(&store.url(), &files)?;
        return open_files(store, &files);
    }
    let open_torch =
        |store: &dyn Store, keys: &[&str]| torch_zip::open_files(store, keys, &torch_zip::policy());
    if names.contains(&TORCH_INDEX_FILE) {
        return from_index(store, TORCH_INDEX_FILE, open_torch);
    }
    if names.contains(&TORCH_FILE) {
        return open_torch(store, &[TORCH_FILE]);
    }
    Err(Error::NotAModel { place: store.url() })
}

/// Opens the named safetensors files as one model.
///
/// # Errors
/// If a file is invalid, or a tensor that is not sharded occurs in two of them.
pub fn open_files(store: &dyn Store, keys: &[&str]) -> Result<Model, Error> {
    let mut model = Model {
        format: "safetensors",
        ..Model::default()
    };
    for key in keys {
        add_file(store, key, &mut model)?;
    }
    Ok(model)
}

fn add_file(store: &dyn Store, key: &str, model: &mut Model) -> Result<(), Error> {
    let header = safetensors::read(store, key)?;
    let shards = shards(key, &header)?;
    let file = model.files.len();
    model.files.push(DataFile::plain(key, header.file_len()));
    for entry in header.entries {
        let offset = header.data_start + entry.begin;
        let shard = shards.as_ref().and_then(|shards| shards.get(&entry.name));
        if let Some(shard) = shard {
            let piece = shard_piece(key, file, offset, &entry, shard)?;
            let known = model.tensors.entry(entry.name.clone());
            let known = known.or_insert_with(|| Tensor {
                dtype: entry.dtype,
                shape: vec![0; entry.shape.len()],
                pieces: Vec::new(),
            });
            join_shard(key, &entry, known, piece)?;
            continue;
        }
        match model.tensors.entry(entry.name) {
            Vacant(place) => {
                place.insert(Tensor::whole(entry.dtype, entry.shape, file, offset));
            }
            Occupied(known) => {
                let pieces = &known.get().pieces;
                let other = pieces.first().map_or(file, |piece| piece.file);
                let other = &model.files[other].key;
                let reason = format!("tensor `{}` is also in `{other}`", known.key());
                return Err(header_error(key, reason));
            }
        }
    }
    Ok(())
}

/// Where the boxes in a file begin, if it says so.
fn shards(key: &str, header: &Header) -> Result<Option<BTreeMap<String, Shard>>, Error> {
    let Some(text) = header.metadata.get(SHARDING_KEY) else {
        return Ok(None);
    };
    match serde_json::from_str(text) {
        Ok(shards) => Ok(Some(shards)),
        Err(error) => Err(header_error(key, format!("`{SHARDING_KEY}`: {error}"))),
    }
}

fn shard_piece(
    key: &str,
    file: usize,
    offset: u64,
    entry: &Entry,
    shard: &Shard,
) -> Result<PieceAt, Error> {
    let ends = shard.saved_offsets.iter().zip(&entry.shape);
    let fits = shard.saved_offsets.len() == entry.shape.len()
        && ends
            .clone()
            .all(|(start, len)| start.checked_add(*len).is_some());
    if !fits {
        let reason = format!(
            "tensor `{}` of shape {:?} cannot begin at {:?}",
            entry.name, entry.shape, shard.saved_offsets
        );
        return Err(header_error(key, reason));
    }
    Ok(PieceAt {
        file,
        offset,
        piece: Piece::whole(Region {
            offset: shard.saved_offsets.clone(),
            extent: entry.shape.clone(),
        }),
        encoding: Encoding::RowMajor,
    })
}

/// Adds a box to a tensor, which reaches as far as its boxes do.
fn join_shard(key: &str, entry: &Entry, tensor: &mut Tensor, piece: PieceAt) -> Result<(), Error> {
    let region = &piece.piece.region;
    if tensor.dtype != entry.dtype || tensor.shape.len() != region.ndim() {
        let reason = format!("tensor `{}` has another type in another file", entry.name);
        return Err(header_error(key, reason));
    }
    for (dim, size) in tensor.shape.iter_mut().enumerate() {
        *size = region.end(dim).max(*size);
    }
    tensor.pieces.push(piece);
    Ok(())
}

fn header_error(key: &str, reason: String) -> Error {
    Error::Header {
        file: key.to_string(),
        reason,
    }
}

fn from_index(
    store: &dyn Store,
    index_file: &str,
    open: impl Fn(&dyn Store, &[&str]) -> Result<Model, Error>,
) -> Result<Model, Error> {
    let fail = |reason: String| Error::Index {
        file: index_file.into(),
        reason,
    };
    let index: Index = serde_json::from_slice(&store.get(index_file)?)
        .map_err(|e| fail(format!("not an index: {e}")))?;
    let files: HashSet<&str> = index.pairs().map(|(_, file)| file).collect();
    let mut files: Vec<&str> = files.into_iter().collect();
    files.sort_unstable();
    let mut model = open(store, &files)?;
    let mut wanted: HashMap<&str, &str> = index.pairs().collect();
    let holds = |tensor: &Tensor, file: &str| {
        let piece = tensor.pieces.first();
        piece.is_some_and(|piece| model.files[piece.file].key == file)
    };
    model.tensors.retain(|name, tensor| {
        let file = wanted.get(name.as_str()).copied();
        let found = file.is_some_and(|file| holds(tensor, file));
        if found {
            wanted.remove(name.as_str());
        }
        file.is_some()
    });
    // What is left goes by another name, or is not where it should be.
    let is_missing = |(name, file): &(&str, &str)| {
        let found = model.find(name);
        !found.is_some_and(|tensor| holds(tensor, file))
    };
    match wanted.into_iter().filter(is_missing).min() {
        Some((name, file)) => Err(fail(format!("tensor `{name}` is not in `{file}`"))),
        None => Ok(model),
    }
}

fn is_asset(key: &str) -> bool {
    let data = [".safetensors", ".bin", ".pt", ".pth", ".index.json"];
    let text = [
        ".json",
        ".txt",
        ".model",
        ".pdmodel",
        ".jinja",
        ".md",
        ".py",
        ".tiktoken",
    ];
    !data.iter().any(|end| key.ends_with(end)) && text.iter().any(|end| key.ends_with(end))
}

#[cfg(test)]
mod tests {
    //! Folders as Hugging Face tools write them, and folders that lie.

    use super::*;
    use crate::safetensors::{Entry, encode};
    use cairn_store::{Memory, PutMode};
    use cairn_tensor::DType;

    /// A file with the rows `from..` of a two-column matrix `w`.
    fn put_shard(store: &Memory, key: &str, from: usize, rows: usize) {
        let len = 2 * rows as u64;
        let entry = Entry {
            name: "w".into(),
            dtype: DType::U8,
            shape: vec![rows, 2],
            begin: 0,
            end: len,
        };
        let info = format!(r#"{{"w":{{"saved_offsets":[{from},0]}}}}"#);
        let mut file = encode(&[entry], &[(SHARDING_KEY, &info)], 8).unwrap();
        file.resize(file.len() + 2 * rows, 1);
        store.put(key, &file, PutMode::Create).unwrap();
    }

    #[test]
    fn files_that_say_where_their_boxes_begin_are_joined() {
        let store = Memory::new();
        put_shard(&store, "shard-00001-model.safetensors", 0, 3);
        put_shard(&store, "shard-00002-model.safetensors", 3, 2);
        let model = open_folder(&store).unwrap();
        let tensor = &model.tensors["w"];
        assert_eq!(tensor.shape, [5, 2]);
        let second = tensor.pieces[1].piece.region.to_string();
        assert_eq!(second, "3:2,0:2");
        put_shard(&store, "shard-00003-model.safetensors", usize::MAX, 2);
        assert!(open_folder(&store).is_err());
    }

    fn put_model(store: &Memory, key: &str, names: &[&str]) {
        let entries: Vec<Entry> = names
            .iter()
            .zip(0..)
            .map(|(name, i): (_, u64)| Entry {
                name: (*name).into(),
                dtype: DType::U8,
                shape: vec![2],
                begin: 2 * i,
                end: 2 * i + 2,
            })
            .collect();
        let mut file = encode(&entries, &[], 8).unwrap();
        file.resize(file.len() + 2 * names.len(), 1);
        store.put(key, &file, PutMode::Create).unwrap();
    }

    #[test]
    fn an_indexed_folder_lists_its_tensors_and_assets() {
        let store = Memory::new();
        put_model(&store, "model-00001-of-00002.safetensors", &["a", "b"]);
        put_model(&store, "model-00002-of-00002.safetensors", &["c", "stale"]);
        let index = r#"{"metadata":{"total_size":6},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}}"#;
        store
            .put(INDEX_FILE, index.as_bytes(), PutMode::Create)
            .unwrap();
        store.put("config.json", b"{}", PutMode::Create).unwrap();
        store.put("optimizer.pt", b"x", PutMode::Create).unwrap();
        let model = open_folder(&store).unwrap();
        assert_eq!(model.tensors.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(model.assets, ["config.json"]);
    }

    #[test]
    fn an_index_that_names_a_missing_tensor_is_refused() {
        let store = Memory::new();
        put_model(&store, "m.safetensors", &["a"]);
        let index = r#"{"weight_map":{"b":"m.safetensors"}}"#;
        store
            .put(INDEX_FILE, index.as_bytes(), PutMode::Create)
            .unwrap();
        let error = open_folder(&store).unwrap_err().to_string();
        assert!(
            error.contains("tensor `b` is not in `m.safetensors`"),
            "{error}"
        );
    }

    #[test]
    fn the_same_tensor_in_two_files_is_refused() {
        let store = Memory::new();
        put_model(&store, "x.safetensors", &["a"]);
        put_model(&store, "y.safetensors", &["a"]);
        assert!(open_folder(&store).is_err());
    }

    #[test]
    fn a_folder_without_a_model_says_so() {
        let error = open_folder(&Memory::new()).unwrap_err();
        assert!(matches!(error, Error::NotAModel { .. }));
        assert!(error.hint().unwrap().contains("model.safetensors"));
    }
}
