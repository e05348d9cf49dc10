//! A folder of files that is published when all of it is whole.

use super::hf::put;
use super::journal::{Journal, Phase, UNFINISHED_FOLDER};
use super::output::OutputFile;
use super::{RewriteOptions, write_files};
use crate::Error;
use crate::checksum::sha256_hex;
use crate::error::StoreContext;
use crate::pattern::Pattern;
use crate::source::Source;
use cairn_formats::dcp::METADATA_FILE;
use cairn_formats::hf::{INDEX_FILE, SINGLE_FILE};
use cairn_store::{PutMode, Store};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What an export did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportReport {
    /// The data files written.
    pub files: Vec<String>,
    /// Their bytes.
    pub len_bytes: u64,
    /// The tensors in them.
    pub tensors: usize,
    /// Side files copied.
    pub assets: usize,
}

/// A file that an export will write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Its name.
    pub name: String,
    /// The tensors in it.
    pub tensors: usize,
    /// Its length.
    pub len_bytes: u64,
}

/// A model as it will lie in a folder.
#[derive(Default)]
pub(super) struct Folder {
    /// Data files, in order. The last is published last.
    pub(super) files: Vec<OutputFile>,
    /// Small files that come along, by name.
    pub(super) assets: Vec<(String, Vec<u8>)>,
    /// What makes the folder a model, such as an index; none if its last file does.
    pub(super) entry: Option<(String, Vec<u8>)>,
    /// Whether it is one file, and the folder around it somebody else's.
    pub(super) is_file: bool,
}

/// The files of a model that lie in a folder, those that make it one first.
///
/// # Errors
/// If the folder cannot be listed.
pub fn model_files(folder: &dyn Store) -> Result<Vec<String>, Error> {
    let listing = folder
        .list_files("")
        .doing(|| format!("list `{}`", folder.url()))?;
    let keys = listing.into_iter().map(|meta| meta.key);
    let mut files: Vec<String> = keys.filter(|key| is_model_file(key)).collect();
    files.sort_by_key(|key| !is_entry(key));
    Ok(files)
}

fn is_entry(key: &str) -> bool {
    [INDEX_FILE, SINGLE_FILE, METADATA_FILE].contains(&key)
}

fn is_model_file(key: &str) -> bool {
    let part = Pattern::new("model-?????-of-?????.safetensors");
    let torch = Pattern::new("__*.distcp");
    is_entry(key) || part.matches(key) || torch.matches(key)
}

impl Folder {
    /// The data files, before they exist.
    pub(super) fn planned(self) -> Vec<PlannedFile> {
        let planned = |file: OutputFile| PlannedFile {
            tensors: file.items.len(),
            len_bytes: file.len,
            name: file.key,
        };
        self.files.into_iter().map(planned).collect()
    }

    /// Writes the folder from `source`, or what is missing of it.
    ///
    /// # Crash safety
    /// Data gathers in a folder of its own, with a journal. Until all of it is durable, a model that is to be replaced is as it was;
    /// then that goes, what makes it a model first; then the files move to their places, what makes them a model last. So a
    /// reader finds the old model, the new one, or none.
    pub(super) fn write(
        mut self,
        source: &dyn Source,
        store: &Arc<dyn Store>,
        options: &RewriteOptions,
    ) -> Result<ExportReport, Error> {
        let staging = match self.files.first() {
            Some(file) if self.is_file => format!("{UNFINISHED_FOLDER}-{}", file.key),
            _ => UNFINISHED_FOLDER.to_string(),
        };
        let identity = self.identity(&options.identity);
        let mut journal = Journal::open(store.as_ref(), staging, identity, options.unfinished)?;
        let report = self.report();
        if journal.phase() == Phase::Writing {
            let replaces = self.replaces(store.as_ref(), options)?;
            self.write_data(source, store, &mut journal, options)?;
            journal.set_whole(replaces)?;
        }
        if journal.phase() == Phase::Whole {
            for key in journal.replaces() {
                let doing = || format!("delete `{key}`");
                store.delete(key).doing(doing)?;
            }
            journal.set_clear()?;
        }
        self.publish(store.as_ref(), &journal, &report)?;
        journal.close()?;
        Ok(report)
    }

    fn report(&self) -> ExportReport {
        ExportReport {
            files: self.files.iter().map(|file| file.key.clone()).collect(),
            len_bytes: self.files.iter().map(|file| file.len).sum(),
            tensors: self.files.iter().map(|file| file.items.len()).sum(),
            assets: self.assets.len(),
        }
    }

    /// Changes with the source, what is made of it, and the files it becomes.
    fn identity(&self, of_source: &str) -> String {
        let mut text = of_source.as_bytes().to_vec();
        for file in &self.files {
            text.extend_from_slice(format!("\n{} {}", file.key, file.len).as_bytes());
            file.frames
                .iter()
                .for_each(|frame| text.extend_from_slice(&frame.bytes));
        }
        for (name, bytes) in self.assets.iter().chain(&self.entry) {
            text.extend_from_slice(format!("\n{name} {}", sha256_hex(bytes)).as_bytes());
        }
        sha256_hex(&text)
    }

    /// The files that are in the way; an error unless they are to be replaced.
    fn replaces(&self, store: &dyn Store, options: &RewriteOptions) -> Result<Vec<String>, Error> {
        let taken = match self.files.first() {
            Some(file) if self.is_file => {
                let found = store.head(&file.key);
                let found = found.doing(|| format!("look for `{}`", file.key))?;
                found.into_iter().map(|meta| meta.key).collect()
            }
            _ => model_files(store)?,
        };
        if taken.is_empty() || options.replace {
            return Ok(taken);
        }
        Err(Error::TargetTaken {
            url: store.url(),
            files: taken,
        })
    }

    /// Writes the files that are not whole yet.
    fn write_data(
        &mut self,
        source: &dyn Source,
        store: &Arc<dyn Store>,
        journal: &mut Journal,
        options: &RewriteOptions,
    ) -> Result<(), Error> {
        self.check_space(store.as_ref(), journal)?;
        journal.put()?;
        for file in &mut self.files {
            if journal.has(&file.key) {
                options.progress.fetch_add(file.len, Ordering::Relaxed);
                continue;
            }
            let name = file.key.clone();
            file.key = journal.staged(&name);
            // What is there is not known to be whole.
            let doing = || format!("delete `{}`", file.key);
            store.delete(&file.key).doing(doing)?;
            write_files(source, store, std::slice::from_mut(file), options)?;
            journal.add(&name)?;
            file.key = name;
        }
        Ok(())
    }

    /// An error if what is left to write cannot fit.
    fn check_space(&self, store: &dyn Store, journal: &Journal) -> Result<(), Error> {
        let left = self.files.iter().filter(|file| !journal.has(&file.key));
        let needed: u64 = left.map(|file| file.len).sum();
        let doing = || format!("write {} files to `{}`", self.files.len(), store.url());
        match store.available_bytes().doing(doing)? {
            Some(available) if available < needed => Err(cairn_store::Error::NoSpace {
                key: store.url(),
                needed,
                available,
            })
            .doing(doing),
            _ => Ok(()),
        }
    }

    /// Moves everything to its place, what makes it a model last.
    fn publish(
        &self,
        store: &dyn Store,
        journal: &Journal,
        report: &ExportReport,
    ) -> Result<(), Error> {
        for (name, bytes) in &self.assets {
            put(store, name, bytes)?;
        }
        for name in &report.files {
            let staged = journal.staged(name);
            let published = match store.rename(&staged, name, PutMode::Create) {
                // It was moved before the rewrite was cut short.
                Err(error @ cairn_store::Error::NotFound { .. }) => {
                    match store.head(name).doing(|| format!("look for `{name}`"))? {
                        Some(_) => Ok(()),
                        None => Err(error),
                    }
                }
                other => other,
            };
            published.doing(|| format!("publish `{name}`"))?;
        }
        match &self.entry {
            Some((name, bytes)) => put(store, name, bytes),
            None => Ok(()),
        }
    }
}
