//! A run's store with what a keeper holds of the run laid over it.
//!
//! The store has the first word on everything but data: a step that is committed there is the step, and the keeper's memory is a faster
//! way to the same bytes, which the checksums in the store prove. A step that was captured as a whole and not yet committed when its
//! writers died is added: its manifest is the one that will be committed.

use crate::lease::{Lease, Leased};
use crate::persist::ImageReader;
use cairn_checkpoint::keeper::manifest_of;
use cairn_store::{
    Error, Location, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store, Upload,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// A store, and what is held in memory of the run in it.
pub(crate) struct KeptStore {
    store: Arc<dyn Store>,
    lease: Arc<Lease>,
    /// Data files in memory, by key: which snapshot of the lease has each.
    data: BTreeMap<String, usize>,
    /// Small objects that are in memory, and in the store as well if it has them.
    small: BTreeMap<String, Arc<[u8]>>,
}

/// A small object in memory.
struct Small {
    key: String,
    bytes: Arc<[u8]>,
}

/// A data file in memory, which nobody changes while it is open.
struct Data {
    image: ImageReader,
    _lease: Arc<Lease>,
}

impl KeptStore {
    /// Lays what is leased over `store`.
    pub(crate) fn over(store: Arc<dyn Store>, lease: Lease) -> Arc<dyn Store> {
        if lease.snapshots.is_empty() {
            return store;
        }
        // What is damaged in memory, too, is then read from the durable tier.
        if let Some(tiers) = store.tiers() {
            let fast = Self::over(tiers.fast().clone(), lease);
            return Arc::new(tiers.with_fast(fast));
        }
        let mut kept = Self {
            store,
            lease: Arc::new(lease),
            data: BTreeMap::new(),
            small: BTreeMap::new(),
        };
        let lease = kept.lease.clone();
        for (index, leased) in lease.snapshots.iter().enumerate() {
            kept.add(index, leased);
        }
        kept.add_orphaned_steps();
        Arc::new(kept)
    }

    fn add(&mut self, index: usize, leased: &Leased) {
        if leased.memory.is_some() {
            self.data.insert(leased.about.data_key(), index);
        }
        let part = (leased.about.part_key(), leased.part.clone());
        for (key, bytes) in leased.assets.clone().into_iter().chain([part]) {
            self.small.insert(key, bytes.into());
        }
    }

    /// Adds the manifests of steps that are all here, and whose writers are all gone.
    fn add_orphaned_steps(&mut self) {
        let lease = self.lease.clone();
        let mut attempts: BTreeMap<(u64, &str), BTreeMap<usize, &Leased>> = BTreeMap::new();
        for leased in lease.snapshots.iter().filter(|leased| leased.orphan) {
            let attempt = (leased.about.step, leased.about.attempt.as_str());
            let writers = attempts.entry(attempt).or_default();
            writers.insert(leased.about.writer, leased);
        }
        for ((step, _), writers) in attempts {
            let Some(first) = writers.values().next().map(|leased| &leased.about) else {
                continue;
            };
            if writers.len() != first.world {
                let (here, world) = (writers.len(), first.world);
                tracing::info!(
                    step,
                    here,
                    world,
                    "a step in the keeper's memory lacks writers of other machines: the store is asked"
                );
                continue;
            }
            // A part that is in the store already is the one that counts.
            let part = |leased: &&Leased| {
                let stored = self.store.get(&leased.about.part_key());
                stored.unwrap_or_else(|_| leased.part.clone())
            };
            let parts: Vec<Vec<u8>> = writers.values().map(part).collect();
            match manifest_of(&parts) {
                Ok(manifest) => drop(self.small.insert(first.commit_key(), manifest.into())),
                Err(error) => {
                    tracing::warn!(step, %error, "a step in the keeper's memory is not whole")
                }
            }
        }
    }

    /// Describes what is in memory under the folder `prefix`.
    fn listed(&self, prefix: &str) -> Vec<ObjectMeta> {
        let data = self.data.iter().map(|(key, index)| {
            let about = &self.lease.snapshots[*index].about;
            (key, about.len_bytes)
        });
        let small = self.small.iter();
        let small = small.map(|(key, bytes)| (key, bytes.len() as u64));
        data.chain(small)
            .filter(|(key, _)| below(prefix, key).is_some())
            .map(|(key, len)| ObjectMeta {
                key: key.clone(),
                len,
                modified: SystemTime::now(),
            })
            .collect()
    }
}

impl Store for KeptStore {
    fn url(&self) -> String {
        self.store.url()
    }

    fn locations(&self, key: &str) -> Vec<Location> {
        self.store.locations(key)
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        self.store.put(key, bytes, mode)
    }

    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        self.store.create(key, len)
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        if let Some(index) = self.data.get(key) {
            let leased = &self.lease.snapshots[*index];
            return Ok(Box::new(Data {
                image: ImageReader {
                    memory: leased.memory.clone(),
                    len: leased.about.len_bytes,
                    key: key.to_string(),
                },
                _lease: self.lease.clone(),
            }));
        }
        match (self.store.reader(key), self.small.get(key)) {
            (Err(Error::NotFound { .. }), Some(bytes)) => Ok(Box::new(Small {
                key: key.to_string(),
                bytes: bytes.clone(),
            })),
            (reader, _) => reader,
        }
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        let stored = self.store.head(key)?;
        let held = || self.listed("").into_iter().find(|meta| meta.key == key);
        Ok(stored.or_else(held))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        let stored = self.store.list(prefix)?.into_iter();
        let mut all: BTreeMap<String, ObjectMeta> =
            stored.map(|meta| (meta.key.clone(), meta)).collect();
        for meta in self.listed(prefix) {
            all.entry(meta.key.clone()).or_insert(meta);
        }
        Ok(all.into_values().collect())
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut folders: BTreeSet<String> = self.store.list_folders(prefix)?.into_iter().collect();
        for meta in self.listed(prefix) {
            let rest = below(prefix, &meta.key).unwrap_or_default();
            folders.extend(rest.split_once('/').map(|(folder, _)| folder.to_string()));
        }
        Ok(folders.into_iter().collect())
    }

    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        self.store.rename(key, to, mode)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        self.store.delete(key)
    }

    fn settle(&self, prefix: &str) -> Result<(), Error> {
        self.store.settle(prefix)
    }

    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        self.store.sweep(prefix)
    }

    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        self.store.available_bytes()
    }

    fn has_one_winner(&self) -> Result<bool, Error> {
        self.store.has_one_winner()
    }

    fn is_far(&self) -> bool {
        self.store.is_far()
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<Upload>, Error> {
        self.store.uploads(prefix)
    }

    fn abort(&self, upload: &Upload) -> Result<(), Error> {
        self.store.abort(upload)
    }
}

impl ObjectReader for Small {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(buffer.len());
        let Some(bytes) = self.bytes.get(begin..end) else {
            return Err(Error::Truncated {
                key: self.key.clone(),
                offset,
                wanted: buffer.len() as u64,
                got: self.bytes.len().saturating_sub(begin) as u64,
            });
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl ObjectReader for Data {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.image.read_at(offset, buffer)
    }

    fn is_memory(&self) -> bool {
        true
    }
}

impl fmt::Debug for KeptStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KeptStore")
            .field("store", &self.store)
            .field("data", &self.data.keys())
            .finish_non_exhaustive()
    }
}

/// What follows the folder `prefix` in `key`, if it lies there.
fn below<'a>(prefix: &str, key: &'a str) -> Option<&'a str> {
    match prefix {
        "" => Some(key),
        prefix => key.strip_prefix(prefix)?.strip_prefix('/'),
    }
}
