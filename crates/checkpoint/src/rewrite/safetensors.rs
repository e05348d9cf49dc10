//! A source as one safetensors file.

use super::RewriteOptions;
use super::folder::{ExportReport, Folder, PlannedFile};
use super::hf::{output_file, shards};
use crate::Error;
use crate::source::Source;
use cairn_store::Store;
use std::sync::Arc;

/// The file that [`export_safetensors`] would write for the same arguments.
///
/// # Errors
/// As [`export_safetensors`], before anything is written.
pub fn plan_safetensors(
    source: &dyn Source,
    key: &str,
    names: &[&str],
) -> Result<Vec<PlannedFile>, Error> {
    Ok(file(source, key, names)?.planned())
}

/// Writes the tensors `names` of `source` whole into the safetensors file `key` of `store`. Side files stay behind.
///
/// # Crash safety
/// As [`export_hf`](super::export_hf).
///
/// # Errors
/// If there is a file of that name, something is damaged, or the disk is full.
pub fn export_safetensors(
    source: &dyn Source,
    store: &Arc<dyn Store>,
    key: &str,
    names: &[&str],
    options: &RewriteOptions,
) -> Result<ExportReport, Error> {
    file(source, key, names)?.write(source, store, options)
}

fn file(source: &dyn Source, key: &str, names: &[&str]) -> Result<Folder, Error> {
    let shards = shards(source, names, u64::MAX)?;
    let files = shards.iter().map(|shard| output_file(key.into(), shard));
    Ok(Folder {
        files: files.collect::<Result<_, _>>()?,
        is_file: true,
        ..Folder::default()
    })
}
