//! The models of a merge, opened.

use crate::Error;
use crate::adapter::Adapter;
use crate::config::ModelReference;
use crate::input::Input;
use cairn_checkpoint::{Checkpointer, Place, SharedSource, StoredTensor, World, find};
use cairn_store::Location;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

/// The file that describes a Hugging Face model.
pub(crate) const CONFIG_FILE: &str = "config.json";

type Assets = Vec<(String, Vec<u8>)>;

/// A model, ready to be read.
pub(crate) struct Model {
    pub(crate) reference: ModelReference,
    pub(crate) source: SharedSource,
    pub(crate) names: BTreeSet<String>,
    adapter: Option<Adapter>,
    assets: OnceLock<Assets>,
}

impl Model {
    /// Opens a model and its adapter.
    pub(crate) fn open(reference: &ModelReference) -> Result<Self, Error> {
        let source = open_source(&reference.path)?;
        let names = source.names().into_iter().map(str::to_string).collect();
        let adapter = match &reference.lora {
            Some(path) => Some(Adapter::open(path, open_source(path)?, &names)?),
            None => None,
        };
        Ok(Self {
            reference: reference.clone(),
            source,
            names,
            adapter,
            assets: OnceLock::new(),
        })
    }

    /// The tensor called `name`, as it is stored.
    pub(crate) fn find(&self, name: &str) -> Option<StoredTensor> {
        self.source.find(name)
    }

    /// The tensor `name`, with what the adapter adds.
    pub(crate) fn input(&self, name: &str) -> Result<Input, Error> {
        let Some(adapter) = &self.adapter else {
            return Input::open(&self.source, name);
        };
        if let Some(replacement) = adapter.replacement(name) {
            return Input::open(&adapter.source, replacement);
        }
        let mut input = Input::open(&self.source, name)?;
        input.delta = adapter.delta(name, &input.stored)?.map(Arc::new);
        Ok(input)
    }

    /// Where the model and its adapter are read from.
    pub(crate) fn places(&self) -> Vec<Location> {
        let adapter = self
            .adapter
            .iter()
            .flat_map(|adapter| adapter.source.places());
        self.source.places().into_iter().chain(adapter).collect()
    }

    /// The side files, read when first asked for.
    pub(crate) fn assets(&self) -> Result<&Assets, Error> {
        if let Some(assets) = self.assets.get() {
            return Ok(assets);
        }
        let assets = self.source.assets()?;
        Ok(self.assets.get_or_init(|| assets))
    }

    /// A side file.
    pub(crate) fn asset(&self, name: &str) -> Result<Option<&[u8]>, Error> {
        let mut assets = self.assets()?.iter();
        Ok(assets
            .find(|(known, _)| known == name)
            .map(|(_, bytes)| bytes.as_slice()))
    }

    /// A side file that is JSON.
    pub(crate) fn json(&self, name: &str) -> Result<Option<Value>, Error> {
        let Some(bytes) = self.asset(name)? else {
            return Ok(None);
        };
        let parsed = serde_json::from_slice(bytes);
        parsed
            .map(Some)
            .map_err(|error| self.fault(name, format!("is not JSON: {error}")))
    }

    /// An error about a side file.
    pub(crate) fn fault(&self, file: &str, reason: String) -> Error {
        Error::Asset {
            model: self.reference.to_string(),
            file: file.to_string(),
            reason,
        }
    }

    /// Adds what tells this model from another, and from itself after a change, to a hash.
    pub(crate) fn fingerprint(&self, hash: &mut Sha256) {
        hash.update(self.reference.to_string());
        for name in &self.names {
            hash.update(format!("{name} {:?}\n", self.find(name)));
        }
        let paths = [Some(&self.reference.path), self.reference.lora.as_ref()];
        for path in paths.into_iter().flatten() {
            let listing = cairn_store::open(path).and_then(|store| store.list_files(""));
            for meta in listing.unwrap_or_default() {
                let modified = meta.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
                hash.update(format!("{} {} {modified:?}\n", meta.key, meta.len));
            }
        }
    }
}

/// Opens what lies at a path; of a run, its newest whole step.
fn open_source(path: &str) -> Result<SharedSource, Error> {
    let (run, step) = match find(path)? {
        Place::Folder(model) | Place::File(model) => return Ok(Arc::new(model)),
        Place::Run(run) => (run, None),
        Place::Step(run, step) => (run, Some(step)),
    };
    let reader = Checkpointer::new(run, World::single());
    Ok(Arc::new(match step {
        Some(step) => reader.open(step)?,
        None => reader.latest()?.checkpoint,
    }))
}
