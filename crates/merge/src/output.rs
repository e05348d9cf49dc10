//! Writes the result as a Hugging Face folder, file by file, and takes up again what was cut short.
//!
//! The merge works out bytes; where they gather, and when they take the place of what is there, is decided in one place for
//! everything that writes folders: [`NewFolder`].

mod file;

pub(crate) use file::{CHUNK_BYTES, CHUNKS};

use crate::Error;
use crate::merge::Merge;
use crate::models::Model;
use cairn_checkpoint::{NewFolder, OnUnfinished, PlannedFile, RewriteOptions};
use cairn_formats::hf::INDEX_FILE;
use cairn_store::Store;
use file::File;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How a merge is written.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Whether files that an earlier try of the same merge finished are kept.
    pub resume: bool,
    /// Whether what is in the way goes, once the result is whole; what an earlier try left goes, too.
    pub replace: bool,
    /// Whether everything is checked and nothing is written.
    pub dry_run: bool,
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

impl Merge {
    /// The data files that [`write`](Merge::write) writes.
    ///
    /// # Errors
    /// If a file would have more names than its format allows.
    pub fn files(&self) -> Result<Vec<PlannedFile>, Error> {
        Ok(File::deal(self)?.iter().map(planned).collect())
    }

    /// Writes the result to `target`, a folder that none of the models is read from.
    ///
    /// # Crash safety
    /// As [`NewFolder::write`]: what is there stays as it was until all of the result is durable.
    ///
    /// # Errors
    /// If the folder is taken or belongs to a model that is merged, a model cannot be read, or the disk is full.
    pub fn write(
        &self,
        target: &Arc<dyn Store>,
        options: &WriteOptions,
    ) -> Result<WriteReport, Error> {
        let files = File::deal(self)?;
        let folder = NewFolder {
            files: files.iter().map(planned).collect(),
            assets: self.assets.clone(),
            entry: (files.len() > 1)
                .then(|| (INDEX_FILE.to_string(), index(self, &files).into_bytes())),
            is_file: false,
            identity: self.identity.clone(),
        };
        let places: Vec<_> = self.models.iter().flat_map(Model::places).collect();
        let progress = &options.progress;
        let report = folder.write(&places, target, &options.rewrite(), |index, key| {
            files[index].write(self, target.as_ref(), key, progress)?;
            tracing::info!(file = files[index].name, bytes = files[index].len, "merged");
            Ok::<(), Error>(())
        })?;
        Ok(WriteReport {
            len_bytes: report.len_bytes,
            files: report.files,
            kept: report.kept,
            assets: self.assets.iter().map(|(name, _)| name.clone()).collect(),
        })
    }
}

impl WriteOptions {
    fn rewrite(&self) -> RewriteOptions {
        RewriteOptions {
            progress: self.progress.clone(),
            unfinished: match (self.resume, self.replace) {
                (true, _) => OnUnfinished::Resume,
                (false, true) => OnUnfinished::Discard,
                (false, false) => OnUnfinished::Refuse,
            },
            replace: self.replace,
            dry_run: self.dry_run,
            ..RewriteOptions::default()
        }
    }
}

fn planned(file: &File) -> PlannedFile {
    PlannedFile {
        tensors: file.tensors.len(),
        len_bytes: file.len,
        name: file.name.clone(),
    }
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
