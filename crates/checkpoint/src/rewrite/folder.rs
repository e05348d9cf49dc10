//! A folder of files that is published when all of it is whole.

use super::guard::{refuse_input, refuse_run};
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
use cairn_formats::hf::{INDEX_FILE, SINGLE_FILE, TORCH_FILE, TORCH_INDEX_FILE};
use cairn_store::{Location, PutMode, Store};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What an export did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportReport {
    /// The data files written.
    pub files: Vec<String>,
    /// Those of them that an earlier try had finished.
    pub kept: Vec<String>,
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
#[derive(Debug, Clone, Default)]
pub struct NewFolder {
    /// Data files, in order. The last is published last.
    pub files: Vec<PlannedFile>,
    /// Small files that come along, by name.
    pub assets: Vec<(String, Vec<u8>)>,
    /// What makes the folder a model, such as an index; none if its last file does.
    pub entry: Option<(String, Vec<u8>)>,
    /// Whether it is one file, and the folder around it somebody else's.
    pub is_file: bool,
    /// Changes with what is in the files.
    pub identity: String,
}

/// A model that is put together from a source.
#[derive(Default)]
pub(super) struct Folder {
    pub(super) files: Vec<OutputFile>,
    pub(super) assets: Vec<(String, Vec<u8>)>,
    pub(super) entry: Option<(String, Vec<u8>)>,
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
    [
        INDEX_FILE,
        SINGLE_FILE,
        METADATA_FILE,
        TORCH_INDEX_FILE,
        TORCH_FILE,
    ]
    .contains(&key)
}

fn is_model_file(key: &str) -> bool {
    let parts = [
        "model-?????-of-?????.safetensors",
        "pytorch_model-?????-of-?????.bin",
        "__*.distcp",
    ];
    is_entry(key) || parts.iter().any(|part| Pattern::new(part).matches(key))
}

impl Folder {
    /// The data files, before they exist.
    pub(super) fn planned(self) -> Vec<PlannedFile> {
        self.files.iter().map(planned).collect()
    }

    /// Writes the folder from `source`, or what is missing of it.
    pub(super) fn write(
        mut self,
        source: &dyn Source,
        store: &Arc<dyn Store>,
        options: &RewriteOptions,
    ) -> Result<ExportReport, Error> {
        let mut identity = options.identity.clone();
        for file in &self.files {
            let mut frames = Vec::new();
            for frame in &file.frames {
                frames.extend_from_slice(&frame.bytes);
            }
            identity.push_str(&format!("\n{}", sha256_hex(&frames)));
        }
        let folder = NewFolder {
            files: self.files.iter().map(planned).collect(),
            assets: self.assets,
            entry: self.entry,
            is_file: self.is_file,
            identity,
        };
        folder.write(&source.places(), store, options, |index, key| {
            let file = &mut self.files[index];
            file.key = key.to_string();
            write_files(source, store, std::slice::from_mut(file), options).map(drop)
        })
    }
}

fn planned(file: &OutputFile) -> PlannedFile {
    PlannedFile {
        tensors: file.items.len(),
        len_bytes: file.len,
        name: file.key.clone(),
    }
}

impl NewFolder {
    /// Writes the folder, or what is missing of it; `write_file` writes the data file of that index under another key.
    ///
    /// `inputs` are the places that the model is made from. Nothing is written there.
    ///
    /// # Crash safety
    /// Everything gathers in a folder of its own, with a journal. Until all of it is durable, what is to be replaced is as it was;
    /// then that goes, what makes it a model first; then the files move to their places, what makes them a model last. So a
    /// reader finds the old model, the new one, or none.
    ///
    /// # Errors
    /// If the target is an input or a run, if files are in the way, and what `write_file` says.
    pub fn write<E: From<Error>>(
        mut self,
        inputs: &[Location],
        store: &Arc<dyn Store>,
        options: &RewriteOptions,
        mut write_file: impl FnMut(usize, &str) -> Result<(), E>,
    ) -> Result<ExportReport, E> {
        let target = store.as_ref();
        self.refuse_place(inputs, target)?;
        let staging = match self.files.first() {
            Some(file) if self.is_file => format!("{UNFINISHED_FOLDER}-{}", file.name),
            _ => UNFINISHED_FOLDER.to_string(),
        };
        let mut report = self.report();
        if options.dry_run {
            self.taken(target, options)?;
            return Ok(report);
        }
        let identity = self.digest();
        let mut journal = Journal::open(target, staging, identity, options.unfinished)?;
        let is_resumed = journal.phase() != Phase::Writing;
        let files = self.files.iter().map(|file| file.name.clone());
        report.kept = files.filter(|name| journal.has(name)).collect();
        if journal.phase() == Phase::Writing {
            let taken = self.taken(target, options)?;
            self.check_space(target, &journal)?;
            journal.put()?;
            self.write_data(target, &mut journal, options, &mut write_file)?;
            self.stage_small(target, &journal)?;
            journal.set_whole(taken)?;
        }
        if journal.phase() == Phase::Whole {
            for key in journal.replaces() {
                let doing = || format!("delete `{key}`");
                target.delete(key).doing(doing)?;
            }
            journal.set_clear()?;
        }
        self.publish(target, &journal, is_resumed)?;
        journal.close()?;
        Ok(report)
    }

    fn report(&self) -> ExportReport {
        ExportReport {
            files: self.files.iter().map(|file| file.name.clone()).collect(),
            kept: Vec::new(),
            len_bytes: self.files.iter().map(|file| file.len_bytes).sum(),
            tensors: self.files.iter().map(|file| file.tensors).sum(),
            assets: self.assets.len(),
        }
    }

    /// Changes with the source, what is made of it, and the files it becomes.
    fn digest(&self) -> String {
        let mut text = self.identity.clone();
        for file in &self.files {
            text.push_str(&format!("\n{} {}", file.name, file.len_bytes));
        }
        for (name, bytes) in self.small() {
            text.push_str(&format!("\n{name} {}", sha256_hex(bytes)));
        }
        sha256_hex(text.as_bytes())
    }

    /// The small files in the order in which they are published, with the entry.
    fn small(&self) -> impl Iterator<Item = &(String, Vec<u8>)> {
        self.assets.iter().chain(&self.entry)
    }

    /// An error if the folder is one that nothing is written to.
    fn refuse_place(&self, inputs: &[Location], store: &dyn Store) -> Result<(), Error> {
        let root = match self.files.first() {
            Some(file) if self.is_file => &file.name,
            _ => "",
        };
        let own: Vec<String> = match self.is_file {
            true => Vec::new(),
            false => model_files(store)?,
        };
        let new = self.files.iter().map(|file| &file.name);
        let new = new.chain(self.small().map(|(name, _)| name));
        refuse_input(
            inputs,
            store,
            root,
            own.iter().chain(new).map(String::as_str),
        )?;
        refuse_run(store, self.is_file)
    }

    /// The files that are in the way, those that make a model first; an error unless they are to be replaced.
    ///
    /// Small files that are there already, byte for byte, are in nobody's way, and are not written again.
    fn taken(&mut self, store: &dyn Store, options: &RewriteOptions) -> Result<Vec<String>, Error> {
        let mut taken = match self.is_file {
            true => Vec::new(),
            false => model_files(store)?,
        };
        let head = |name: &str| store.head(name).doing(|| format!("look for `{name}`"));
        for file in &self.files {
            if !taken.contains(&file.name) && head(&file.name)?.is_some() {
                taken.push(file.name.clone());
            }
        }
        let mut left = Vec::new();
        for (name, bytes) in std::mem::take(&mut self.assets) {
            let is_there = match head(&name)? {
                Some(meta) if meta.len == bytes.len() as u64 => {
                    store.get(&name).doing(|| format!("read `{name}`"))? == bytes
                }
                Some(_) => false,
                None => {
                    left.push((name, bytes));
                    continue;
                }
            };
            if !is_there {
                taken.push(name.clone());
                left.push((name, bytes));
            }
        }
        self.assets = left;
        if taken.is_empty() || options.replace {
            return Ok(taken);
        }
        Err(Error::TargetTaken {
            url: store.url(),
            files: taken,
        })
    }

    /// Writes the data files that are not whole yet.
    fn write_data<E: From<Error>>(
        &self,
        store: &dyn Store,
        journal: &mut Journal,
        options: &RewriteOptions,
        write_file: &mut impl FnMut(usize, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        for (index, file) in self.files.iter().enumerate() {
            if journal.has(&file.name) {
                let done = file.len_bytes;
                options.progress.fetch_add(done, Ordering::Relaxed);
                continue;
            }
            let staged = journal.staged(&file.name);
            // What is there is not known to be whole.
            let doing = || format!("delete `{staged}`");
            store.delete(&staged).doing(doing)?;
            write_file(index, &staged)?;
            journal.add(&file.name)?;
        }
        Ok(())
    }

    /// Puts the small files beside the data, so that all of the new is durable before any of the old goes.
    fn stage_small(&self, store: &dyn Store, journal: &Journal) -> Result<(), Error> {
        for (name, bytes) in self.small() {
            put(store, &journal.staged(name), bytes)?;
        }
        Ok(())
    }

    /// An error if what is left to write cannot fit.
    fn check_space(&self, store: &dyn Store, journal: &Journal) -> Result<(), Error> {
        let left = self.files.iter().filter(|file| !journal.has(&file.name));
        let needed: u64 = left.map(|file| file.len_bytes).sum();
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
    fn publish(&self, store: &dyn Store, journal: &Journal, is_resumed: bool) -> Result<(), Error> {
        let assets = self.assets.iter().map(|(name, _)| name);
        let files = self.files.iter().map(|file| &file.name);
        let entry = self.entry.iter().map(|(name, _)| name);
        for name in assets.chain(files).chain(entry) {
            let staged = journal.staged(name);
            let len = |key: &str| -> Result<Option<u64>, Error> {
                let found = store.head(key).doing(|| format!("look for `{key}`"))?;
                Ok(found.map(|meta| meta.len))
            };
            let published = match store.rename(&staged, name, PutMode::Create) {
                // It was moved before the rewrite was cut short.
                Err(error @ cairn_store::Error::NotFound { .. }) => match len(name)? {
                    Some(_) if is_resumed => Ok(()),
                    _ => Err(error),
                },
                // It has both names: the rewrite was cut short in between.
                Err(error @ cairn_store::Error::AlreadyExists { .. }) if is_resumed => {
                    match len(name)? == len(&staged)? {
                        true => Ok(()),
                        false => Err(error),
                    }
                }
                other => other,
            };
            published.doing(|| format!("publish `{name}`"))?;
        }
        Ok(())
    }
}
