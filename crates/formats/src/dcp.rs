//! A checkpoint folder of `torch.distributed.checkpoint`.
//!
//! ```text
//! .metadata             pickle: tensors, their chunks, and where each lies; written last
//! __<rank>.metadata     the same, one for each rank, if the ranks did not talk to each other
//! __<rank>_<n>.distcp   items back to back
//! ```
//!
//! An item is a torch archive of its own, or all tensors of a file are one safetensors file behind its other items.
//! Chunks of torch archives are found when they are loaded: opening reads `.metadata`, one look into every file, and the
//! plain values. A value that names what plain data has no need of becomes `{"$opaque": "module.Class"}`.

mod encode;
mod metadata;
mod place;
mod values;

use crate::model::{DataFile, Model};
use crate::{Error, hf, join};
use cairn_store::{ObjectMeta, Store};
use metadata::Metadata;
use std::collections::{BTreeSet, HashMap};

pub use encode::{StoredItem, encode_metadata};

/// The file that is written last.
pub const METADATA_FILE: &str = ".metadata";
/// How names of data files end.
pub const DATA_SUFFIX: &str = ".distcp";

/// Whether a folder with these files was written by `torch.distributed.checkpoint`.
pub(crate) fn is_folder(names: &[&str]) -> bool {
    let ours = |name: &&str| **name == *METADATA_FILE || is_rank_metadata(name) || is_data(name);
    names.iter().any(ours)
}

fn is_data(name: &str) -> bool {
    name.starts_with("__") && name.ends_with(DATA_SUFFIX)
}

/// The rank that wrote a data file.
fn rank_of(name: &str) -> Option<&str> {
    let (rank, _) = name.strip_prefix("__")?.split_once('_')?;
    is_data(name).then_some(rank)
}

fn is_rank_metadata(name: &str) -> bool {
    let rank = name
        .strip_prefix("__")
        .and_then(|name| name.strip_suffix(METADATA_FILE));
    rank.is_some_and(|rank| !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Opens the folder `folder` of `store`, `""` for its root.
///
/// # Errors
/// [`Error::Unfinished`] without metadata; [`Error::Damaged`] if files are missing or too short.
pub fn open_folder(store: &dyn Store, folder: &str) -> Result<Model, Error> {
    let listing = store.list_files(folder)?;
    let metadata = read_metadata(store, folder, &listing)?;
    let mut model = Model {
        format: "dcp",
        ..Model::default()
    };
    let files = Files::new(folder, &listing, &metadata, &mut model)?;
    place::tensors(store, &metadata, &files, &mut model)?;
    values::read(store, &metadata, &files, &mut model)?;
    // Of a folder inside a run, side files belong to the run.
    if folder.is_empty() {
        model.assets = hf::assets(&listing);
    }
    Ok(model)
}

/// The metadata of all ranks as one.
fn read_metadata(
    store: &dyn Store,
    folder: &str,
    listing: &[ObjectMeta],
) -> Result<Metadata, Error> {
    let names = listing
        .iter()
        .filter_map(|meta| meta.key.rsplit('/').next());
    let names: BTreeSet<&str> = names.collect();
    if names.contains(METADATA_FILE) {
        return Metadata::read(store, &join(folder, METADATA_FILE));
    }
    let mut ranks = names.iter().filter(|name| is_rank_metadata(name));
    let unfinished = |missing: &str| Error::Unfinished {
        place: store.url(),
        reason: format!("`{}` is missing", join(folder, missing)),
    };
    let Some(first) = ranks.next() else {
        return Err(unfinished(METADATA_FILE));
    };
    for rank in names.iter().filter_map(|name| rank_of(name)) {
        let wanted = format!("__{rank}{METADATA_FILE}");
        if !names.contains(wanted.as_str()) {
            return Err(unfinished(&wanted));
        }
    }
    let mut metadata = Metadata::read(store, &join(folder, first))?;
    for rank in ranks {
        let key = join(folder, rank);
        metadata.merge(&key, Metadata::read(store, &key)?)?;
    }
    Ok(metadata)
}

/// The data files that the metadata names.
struct Files {
    /// Name in the metadata → number in the model, length.
    known: HashMap<String, (usize, u64)>,
    keys: Vec<String>,
}

impl Files {
    /// Finds every file, and checks that all stored items lie inside them.
    fn new(
        folder: &str,
        listing: &[ObjectMeta],
        metadata: &Metadata,
        model: &mut Model,
    ) -> Result<Self, Error> {
        let lens: HashMap<&str, u64> = listing
            .iter()
            .map(|meta| (meta.key.as_str(), meta.len))
            .collect();
        let mut files = Self {
            known: HashMap::new(),
            keys: Vec::new(),
        };
        for item in metadata.items() {
            if !files.known.contains_key(&item.file) {
                let key = join(folder, &item.file);
                let len = lens.get(key.as_str()).copied();
                let len_bytes = len.ok_or_else(|| Error::damaged(&key, "the file is missing"))?;
                let known = (model.files.len(), len_bytes);
                files.known.insert(item.file.clone(), known);
                files.keys.push(key.clone());
                model.files.push(DataFile::plain(&key, len_bytes));
            }
            files.check(item)?;
        }
        Ok(files)
    }

    fn check(&self, item: &metadata::Item) -> Result<(), Error> {
        let (file, len) = self.known[&item.file];
        let end = item.offset.checked_add(item.len);
        match end {
            Some(end) if end <= len => Ok(()),
            _ => {
                let (offset, wanted) = (item.offset, item.len);
                let reason = format!("it has {len} bytes, an item of {wanted} begins at {offset}");
                Err(Error::damaged(&self.keys[file], reason))
            }
        }
    }

    /// The number of a file in the model.
    fn index(&self, item: &metadata::Item) -> usize {
        self.known[&item.file].0
    }

    fn key(&self, index: usize) -> &str {
        &self.keys[index]
    }
}

#[cfg(test)]
mod tests;
