//! A source as a Hugging Face model folder.

use super::RewriteOptions;
use super::describe::described;
use super::folder::{ExportReport, Folder, PlannedFile};
use super::output::{Frame, OutputFile, OutputItem};
use crate::Error;
use crate::error::StoreContext;
use crate::image::Image;
use crate::source::{Source, StoredTensor};
use cairn_formats::hf::{ADAPTER_FILE, INDEX_FILE, SINGLE_FILE};
use cairn_formats::safetensors::Entry;
use cairn_sharding::{Piece, Region};
use cairn_store::{PutMode, Store};
use serde_json::{Map, json};
use std::sync::Arc;

/// The data files that [`export_hf`] would write for the same arguments.
///
/// # Errors
/// If a name is not in the source, or a tensor cannot be stored whole.
pub fn plan_hf(
    source: &dyn Source,
    names: &[&str],
    shard_bytes: u64,
) -> Result<Vec<PlannedFile>, Error> {
    Ok(folder(source, names, shard_bytes)?.planned())
}

/// Writes the tensors `names` of `source` whole into a Hugging Face folder, split into files of at most `shard_bytes` of data.
///
/// # Crash safety
/// Everything gathers aside and is published when it is whole, the index last; see [`RewriteOptions`] for how to take up what was cut
/// short, and for what becomes of a model that is there.
///
/// # Errors
/// If the folder already holds a model, something is damaged, or the disk is full.
pub fn export_hf(
    source: &dyn Source,
    store: &Arc<dyn Store>,
    names: &[&str],
    shard_bytes: u64,
    options: &RewriteOptions,
) -> Result<ExportReport, Error> {
    let mut folder = folder(source, names, shard_bytes)?;
    folder.assets = described(source.assets()?, source, names);
    folder.write(source, store, options)
}

/// The folder without its side files.
fn folder(source: &dyn Source, names: &[&str], shard_bytes: u64) -> Result<Folder, Error> {
    let files = output_files(source, names, shard_bytes)?;
    let entry = (files.len() > 1).then(|| (INDEX_FILE.to_string(), index(&files)));
    Ok(Folder {
        files,
        entry,
        ..Folder::default()
    })
}

/// The text of the index: which file each tensor lies in.
fn index(files: &[OutputFile]) -> Vec<u8> {
    let mut weight_map = Map::new();
    let mut total = 0;
    for file in files {
        for item in &file.items {
            weight_map.insert(item.name.clone(), json!(file.key));
            total += item.len;
        }
    }
    weight_map.sort_keys();
    let index = json!({"metadata": {"total_size": total}, "weight_map": weight_map});
    let text = serde_json::to_string_pretty(&index).expect("an index is JSON") + "\n";
    text.into_bytes()
}

pub(super) fn put(store: &dyn Store, key: &str, bytes: &[u8]) -> Result<(), Error> {
    store
        .put(key, bytes, PutMode::Replace)
        .doing(|| format!("write `{key}`"))
}

/// Whether the tensors are an adapter of peft.
fn is_adapter(source: &dyn Source, names: &[&str]) -> Result<bool, Error> {
    let is_named_so = !names.is_empty() && names.iter().all(|name| name.starts_with("base_model."));
    Ok(is_named_so
        && source
            .assets()?
            .iter()
            .any(|(name, _)| name == "adapter_config.json"))
}

/// The files of an export, in order.
fn output_files(
    source: &dyn Source,
    names: &[&str],
    shard_bytes: u64,
) -> Result<Vec<OutputFile>, Error> {
    let is_adapter = is_adapter(source, names)?;
    // Adapters are small, and their readers look for one file.
    let shard_bytes = if is_adapter { u64::MAX } else { shard_bytes };
    let shards = shards(source, names, shard_bytes)?;
    let count = shards.len();
    let name = |index: usize| match count {
        1 if is_adapter => ADAPTER_FILE.to_string(),
        1 => SINGLE_FILE.to_string(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
    };
    let files = shards.iter().enumerate();
    files
        .map(|(index, shard)| output_file(name(index), shard))
        .collect()
}

pub(super) type Shard<'a> = Vec<(&'a str, StoredTensor, u64)>;

/// Deals names to files in order; a tensor is never split.
pub(super) fn shards<'a>(
    source: &dyn Source,
    names: &[&'a str],
    shard_bytes: u64,
) -> Result<Vec<Shard<'a>>, Error> {
    let mut shards: Vec<Shard> = vec![Vec::new()];
    let mut filled = 0;
    for name in names {
        let stored = source.find(name).ok_or_else(|| Error::State {
            name: (*name).to_string(),
            reason: "is not in the checkpoint".into(),
        })?;
        let elements: usize = stored.shape.iter().product();
        let len = stored
            .dtype
            .len_bytes(elements)
            .ok_or_else(|| Error::State {
                name: (*name).to_string(),
                reason: "does not fill whole bytes".into(),
            })? as u64;
        if filled > 0 && filled + len > shard_bytes {
            shards.push(Vec::new());
            filled = 0;
        }
        filled += len;
        if let Some(shard) = shards.last_mut() {
            shard.push((name, stored, len));
        }
    }
    Ok(shards)
}

/// The safetensors file of these tensors, wide elements first.
pub(super) fn output_file(key: String, shard: &Shard) -> Result<OutputFile, Error> {
    let mut order: Vec<_> = shard.iter().collect();
    order.sort_by_key(|(name, stored, _)| (std::cmp::Reverse(stored.dtype.bits()), *name));
    let mut entries = Vec::new();
    let mut position = 0;
    for (name, stored, len) in &order {
        entries.push(Entry {
            name: (*name).to_string(),
            dtype: stored.dtype,
            shape: stored.shape.clone(),
            begin: position,
            end: position + len,
        });
        position += len;
    }
    let image = Image::new(&entries)?;
    let items = entries.into_iter().map(|entry| OutputItem {
        piece: Piece::whole(Region::whole(&entry.shape)),
        name: entry.name,
        dtype: entry.dtype,
        shape: entry.shape,
        begin: image.data_start() + entry.begin,
        len: entry.end - entry.begin,
        checksum: None,
    });
    Ok(OutputFile {
        key,
        items: items.collect(),
        len: image.len,
        frames: vec![Frame::header(image)],
    })
}
