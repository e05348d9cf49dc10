//! A Hugging Face model folder, or one safetensors file, as a list of tensors.

use crate::{Error, safetensors};
use cairn_store::Store;
use cairn_tensor::DType;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The index file of a model split over several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// The file of a model in one piece.
pub const SINGLE_FILE: &str = "model.safetensors";
/// The largest side file (configuration, tokenizer) that travels with a model.
pub const MAX_ASSET_BYTES: u64 = 64 << 20;

/// A model on disk: its tensors, the files they lie in, and the small files beside them.
#[derive(Debug, Clone)]
pub struct Model {
    /// Data files with their lengths.
    pub files: Vec<DataFile>,
    /// Name → where its bytes are.
    pub tensors: BTreeMap<String, Located>,
    /// Keys of configuration and tokenizer files.
    pub assets: Vec<String>,
}

/// One safetensors file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Its key in the store.
    pub key: String,
    /// Its length.
    pub len_bytes: u64,
}

/// A whole tensor inside a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Index into [`Model::files`].
    pub file: usize,
    /// First byte in that file.
    pub offset: u64,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Opens the model folder that `store` is rooted at.
///
/// Uses `model.safetensors.index.json` if there is one, then `model.safetensors`, then every other `.safetensors` file.
///
/// # Errors
/// If there is no model, a file is invalid, or the index and the files disagree.
pub fn open_folder(store: &dyn Store) -> Result<Model, Error> {
    let listing = store.list("")?;
    let names: Vec<&str> = listing
        .iter()
        .map(|meta| meta.key.as_str())
        .filter(|key| !key.contains('/'))
        .collect();
    let mut model = if names.contains(&INDEX_FILE) {
        from_index(store)?
    } else if names.contains(&SINGLE_FILE) {
        open_files(store, &[SINGLE_FILE])?
    } else {
        let files: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| name.ends_with(".safetensors"))
            .collect();
        if files.is_empty() {
            return Err(Error::NotAModel { place: store.url() });
        }
        open_files(store, &files)?
    };
    model.assets = listing
        .iter()
        .filter(|meta| is_asset(&meta.key) && meta.len <= MAX_ASSET_BYTES)
        .map(|meta| meta.key.clone())
        .collect();
    Ok(model)
}

/// Opens the named safetensors files as one model.
///
/// # Errors
/// If a file is invalid or a tensor occurs in two of them.
pub fn open_files(store: &dyn Store, keys: &[&str]) -> Result<Model, Error> {
    let mut model = Model {
        files: Vec::new(),
        tensors: BTreeMap::new(),
        assets: Vec::new(),
    };
    for key in keys {
        add_file(store, key, &mut model)?;
    }
    Ok(model)
}

fn add_file(store: &dyn Store, key: &str, model: &mut Model) -> Result<(), Error> {
    let header = safetensors::read(store, key)?;
    let file = model.files.len();
    model.files.push(DataFile {
        key: key.to_string(),
        len_bytes: header.file_len(),
    });
    for entry in header.entries {
        let located = Located {
            file,
            offset: header.data_start + entry.begin,
            dtype: entry.dtype,
            shape: entry.shape,
        };
        if let Some(other) = model.tensors.insert(entry.name.clone(), located) {
            return Err(Error::Header {
                file: key.to_string(),
                reason: format!(
                    "tensor `{}` is also in `{}`",
                    entry.name, model.files[other.file].key
                ),
            });
        }
    }
    Ok(())
}

fn from_index(store: &dyn Store) -> Result<Model, Error> {
    let fail = |reason: String| Error::Index {
        file: INDEX_FILE.into(),
        reason,
    };
    let index: Index = serde_json::from_slice(&store.get(INDEX_FILE)?)
        .map_err(|e| fail(format!("not an index: {e}")))?;
    let mut files: Vec<&str> = index.weight_map.values().map(String::as_str).collect();
    files.sort_unstable();
    files.dedup();
    let mut model = open_files(store, &files)?;
    for (name, file) in &index.weight_map {
        let found = model
            .tensors
            .get(name)
            .map(|located| &model.files[located.file].key);
        if found != Some(file) {
            return Err(fail(format!("tensor `{name}` is not in `{file}`")));
        }
    }
    model
        .tensors
        .retain(|name, _| index.weight_map.contains_key(name));
    Ok(model)
}

fn is_asset(key: &str) -> bool {
    let data = [".safetensors", ".bin", ".pt", ".pth", ".index.json"];
    let text = [
        ".json",
        ".txt",
        ".model",
        ".jinja",
        ".md",
        ".py",
        ".tiktoken",
    ];
    !key.contains('/')
        && !data.iter().any(|end| key.ends_with(end))
        && text.iter().any(|end| key.ends_with(end))
}

#[cfg(test)]
mod tests {
    //! Folders as Hugging Face tools write them, and folders that lie.

    use super::*;
    use crate::safetensors::{Entry, encode};
    use cairn_store::{Memory, PutMode};

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
