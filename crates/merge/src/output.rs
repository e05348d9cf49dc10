//! Writes the result as a Hugging Face folder, file by file, and takes up again what was cut short.
//!
//! A file appears in the folder when it is whole. The small files come first and the index, or the only data file, last: a folder
//! that a crash left behind does not look like a model.

mod file;

pub(crate) use file::{CHUNK_BYTES, CHUNKS};

use crate::Error;
use crate::merge::Merge;
use cairn_formats::hf::{INDEX_FILE, SINGLE_FILE};
use cairn_store::{PutMode, Store};
use file::File;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Says that a merge is under way, and which; it goes when the merge is done.
pub const RECORD_FILE: &str = "merge_in_progress.json";

/// How a merge is written.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Whether files that an earlier try of the same merge finished are kept.
    pub resume: bool,
    /// Whether a model that is in the way is deleted.
    pub replace: bool,
    /// Counts the bytes written, for a progress bar.
    pub progress: Arc<AtomicU64>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteReport {
    /// The data files, in order.
    pub files: Vec<String>,
    /// Those of them that an earlier try had finished.
    pub kept: Vec<String>,
    /// The small files.
    pub assets: Vec<String>,
    /// The bytes of all data files.
    pub len_bytes: u64,
}

/// A data file of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Its name.
    pub name: String,
    /// How many tensors are in it.
    pub tensors: usize,
    /// Its length.
    pub len_bytes: u64,
}

impl Merge {
    /// The data files that [`write`](Merge::write) writes.
    ///
    /// # Errors
    /// If a file would have more names than its format allows.
    pub fn files(&self) -> Result<Vec<PlannedFile>, Error> {
        let planned = |file: File| PlannedFile {
            tensors: file.tensors.len(),
            len_bytes: file.len,
            name: file.name,
        };
        Ok(File::deal(self)?.into_iter().map(planned).collect())
    }

    /// Writes the result to `target`, an empty folder, or one where the same merge was cut short.
    ///
    /// # Crash safety
    /// A process that dies leaves whole files only, and nothing that looks like a model.
    ///
    /// # Errors
    /// If the folder is taken, a model cannot be read, or the disk is full.
    pub fn write(
        &self,
        target: &Arc<dyn Store>,
        options: &WriteOptions,
    ) -> Result<WriteReport, Error> {
        let files = File::deal(self)?;
        let mut record = Record::begin(self, target.as_ref(), options)?;
        for (name, bytes) in &self.assets {
            target.put(name, bytes, PutMode::Replace)?;
        }
        let kept = record.finished.clone();
        for file in &files {
            if kept.contains(&file.name) {
                options.progress.fetch_add(file.len, Ordering::Relaxed);
                continue;
            }
            // Nothing under this name was finished.
            target.delete(&file.name)?;
            file.write(self, target.as_ref(), &options.progress)?;
            record.finished.push(file.name.clone());
            record.put(target.as_ref())?;
            tracing::info!(file = file.name, bytes = file.len, "merged");
        }
        if files.len() > 1 {
            target.put(INDEX_FILE, index(self, &files).as_bytes(), PutMode::Replace)?;
        }
        target.delete(RECORD_FILE)?;
        Ok(WriteReport {
            len_bytes: files.iter().map(|file| file.len).sum(),
            files: files.into_iter().map(|file| file.name).collect(),
            kept,
            assets: self.assets.iter().map(|(name, _)| name.clone()).collect(),
        })
    }
}

/// Which merge has a folder, and what of it is done.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    merge: String,
    finished: Vec<String>,
}

impl Record {
    /// Takes a folder for a merge, or finds that it is this merge's already.
    fn begin(merge: &Merge, target: &dyn Store, options: &WriteOptions) -> Result<Self, Error> {
        let taken = model_files(target)?;
        let url = target.url();
        let found = match target.head(RECORD_FILE)? {
            Some(_) => Some(target.get(RECORD_FILE)?),
            None => None,
        };
        match found {
            Some(found) if options.resume => {
                let found: Option<Self> = serde_json::from_slice(&found).ok();
                let own = found.filter(|found| found.merge == merge.identity);
                target.sweep("")?;
                return own.ok_or(Error::OtherMerge { target: url });
            }
            found if !options.replace && (found.is_some() || !taken.is_empty()) => {
                let mut files = taken;
                files.extend(found.map(|_| RECORD_FILE.to_string()));
                return Err(Error::TargetTaken { target: url, files });
            }
            _ => {}
        }
        for file in &taken {
            target.delete(file)?;
        }
        let record = Self {
            merge: merge.identity.clone(),
            finished: Vec::new(),
        };
        record.put(target)?;
        Ok(record)
    }

    fn put(&self, target: &dyn Store) -> Result<(), Error> {
        let text = serde_json::to_vec(self).expect("a record is JSON");
        Ok(target.put(RECORD_FILE, &text, PutMode::Replace)?)
    }
}

/// The data files of a model that lie in a folder, the index first.
fn model_files(target: &dyn Store) -> Result<Vec<String>, Error> {
    let is_data = |key: &str| key == INDEX_FILE || key == SINGLE_FILE || File::is_name(key);
    let listing = target.list_files("")?.into_iter().map(|meta| meta.key);
    let mut files: Vec<String> = listing.filter(|key| is_data(key)).collect();
    files.sort_by_key(|key| key != INDEX_FILE);
    Ok(files)
}

fn index(merge: &Merge, files: &[File]) -> String {
    let mut map = Map::new();
    let mut total = 0;
    for file in files {
        for tensor in &file.tensors {
            let plan = &merge.tensors[tensor.index];
            map.insert(plan.name.clone(), json!(file.name));
            total += tensor.len;
        }
    }
    map.sort_keys();
    let index = json!({"metadata": {"total_size": total}, "weight_map": Value::Object(map)});
    serde_json::to_string_pretty(&index).expect("an index is JSON") + "\n"
}
