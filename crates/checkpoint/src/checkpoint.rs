//! A committed checkpoint, opened.

mod parts;
mod stored;

pub(crate) use stored::StoredFile;

use crate::Error;
use crate::assign::Assignment;
use crate::checksum::sha256_hex;
use crate::copies;
use crate::derived::{self, Derived};
use crate::error::StoreContext;
use crate::layout::Layout;
use crate::load::{LoadOptions, LoadReport, load};
use crate::manifest::{DIGEST_DIGITS, Manifest};
use crate::names::{AttemptKeys, step_folder};
use crate::part::{Blocks, ReadPart, read_head, read_whole};
use crate::signing::{PublicKey, Statement, authentic};
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use crate::standing::committed_attempt;
use crate::tags::tags_of;
use crate::target::Target;
use crate::verify::check_structure;
use cairn_sharding::Region;
use cairn_store::{Location, Store};
use parts::Parts;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// A committed step: its manifest is read, its data is not.
#[derive(Debug)]
pub struct Checkpoint {
    store: Arc<dyn Store>,
    manifest: Manifest,
    layout: Arc<Layout>,
    assignment: Assignment,
    keys: AttemptKeys,
    /// The seal of `COMMIT`.
    seal: String,
    /// What somebody vouches for, if a key is required.
    statement: Option<Statement>,
    /// The parts that were read.
    parts: Parts,
    /// The data files that were opened on tiers, and whether the fast tier's copy turned out to be damaged.
    damaged: Mutex<BTreeMap<usize, Arc<AtomicBool>>>,
}

impl Checkpoint {
    /// Opens `step` of the run that `store` is rooted at. Reads `COMMIT` and nothing else.
    ///
    /// # Errors
    /// If the step is not committed or was deleted, or its manifest is damaged or too new.
    pub fn open(store: Arc<dyn Store>, step: u64) -> Result<Self, Error> {
        let (manifest, seal) = copies::manifest(store.as_ref(), step)?;
        Ok(Self {
            seal,
            ..Self::with_manifest(store, manifest)
        })
    }

    /// Requires that `key` signed the step: from now on nothing is read from it that is not what was signed.
    ///
    /// # Errors
    /// [`Error::Untrusted`] if it is not signed by that key, or not as it is.
    pub fn require_key(mut self, key: &PublicKey) -> Result<Self, Error> {
        self.statement = Some(Statement::signed_by(key, &self)?);
        // What was read before was not compared with it.
        self.parts = Parts::default();
        Ok(self)
    }

    /// The step that has this manifest, whatever its `COMMIT` says.
    pub(crate) fn with_manifest(store: Arc<dyn Store>, manifest: Manifest) -> Self {
        let layout = Arc::new(manifest.layout.clone());
        Self {
            keys: AttemptKeys::new(manifest.step, &manifest.attempt),
            assignment: Assignment::new(layout.clone(), manifest.writers()),
            layout,
            manifest,
            store,
            seal: String::new(),
            statement: None,
            parts: Parts::default(),
            damaged: Mutex::default(),
        }
    }

    /// What the checkpoint contains.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Who wrote what.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// The step.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// The key of the file that `writer`'s data lies in; of a delta, the file with what was new. If it is no plain file, its part is read for that.
    pub fn data_key(&self, writer: usize) -> String {
        let plain = self.keys.data(writer);
        if self.manifest.is_plain() {
            return plain;
        }
        let part = read_head(self.store.as_ref(), &self.keys, writer).ok();
        let file = part.and_then(|part| part.part.file);
        file.map_or(plain, |file| format!("{}/{}", self.keys.folder, file.name))
    }

    /// The tags the step has now, in order.
    ///
    /// # Errors
    /// If its folder cannot be listed or read.
    pub fn tags(&self) -> Result<Vec<String>, Error> {
        tags_of(self.store.as_ref(), &self.manifest)
    }

    /// The plain values all ranks share.
    pub fn values(&self) -> &BTreeMap<String, Value> {
        &self.manifest.values
    }

    /// The plain values that `rank` saved for itself; `None` if the checkpoint had fewer ranks.
    ///
    /// # Errors
    /// If that rank's part is missing or damaged.
    pub fn rank_values(&self, rank: usize) -> Result<Option<BTreeMap<String, Value>>, Error> {
        if rank >= self.manifest.writers() {
            return Ok(None);
        }
        if let Some((known, _)) = self.parts.get(rank).as_deref() {
            return Ok(Some(known.part.rank_values.clone()));
        }
        let part = copies::nearest(self.store.as_ref(), &self.keys.part(rank), |tier| {
            let part = read_head(tier, &self.keys, rank)?;
            self.check_digest(&part).map(|()| part)
        });
        let part = part.map_err(|error| self.explain(error))?;
        Ok(Some(part.part.rank_values))
    }

    /// Makes sure that every part and data file is there with the right size, and that they fit the manifest. Reads no tensor data.
    ///
    /// # Errors
    /// The first thing that is wrong; [`Error::Deleted`] if the step is deleted meanwhile.
    pub fn check(&self) -> Result<(), Error> {
        check_structure(self).map_err(|error| self.explain(error))
    }

    /// Loads `targets`, which may belong to any number of ranks of any layout.
    ///
    /// # Errors
    /// See [`load`]; [`Error::Deleted`] if the step is deleted meanwhile and a file is gone.
    pub fn load(&self, targets: Vec<Target>, options: &LoadOptions) -> Result<LoadReport, Error> {
        load(self, targets, options).map_err(|error| self.explain(error))
    }

    /// What is missing of a step that was deleted after it was opened is no damage.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let attempt = || committed_attempt(self.store.as_ref(), self.step());
        let is_gone =
            || matches!(attempt(), Ok(found) if found.as_ref() != Some(&self.manifest.attempt));
        match error.is_damage() && is_gone() {
            true => Error::Deleted { step: self.step() },
            false => error,
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn seal(&self) -> &str {
        &self.seal
    }

    pub(crate) fn keys(&self) -> &AttemptKeys {
        &self.keys
    }

    /// The part of a writer, checked against the manifest, with what it says of blocks.
    pub(crate) fn part(&self, writer: usize) -> Result<Arc<(ReadPart, Blocks)>, Error> {
        if let Some(known) = self.parts.get(writer) {
            return Ok(known);
        }
        let part = self
            .read_part(writer)
            .map_err(|error| self.explain(error))?;
        Ok(self.parts.keep(writer, part))
    }

    /// As [`Checkpoint::part`], as it is in the store now, whether the step is still there or not.
    pub(crate) fn read_part(&self, writer: usize) -> Result<(ReadPart, Blocks), Error> {
        copies::nearest(self.store.as_ref(), &self.keys.part(writer), |tier| {
            let (part, blocks) = read_whole(tier, &self.keys, writer)?;
            self.check_digest(&part).map(|()| (part, blocks))
        })
    }

    fn check_digest(&self, part: &ReadPart) -> Result<(), Error> {
        let writer = part.part.writer;
        if let Some(statement) = &self.statement
            && !statement.names_part(writer, &part.digest)
        {
            let reason = format!("`{}` is not what was signed", self.keys.part(writer));
            let step = self.step();
            return Err(Error::Untrusted { step, reason });
        }
        if self.manifest.parts[writer] == part.digest[..DIGEST_DIGITS] {
            return Ok(());
        }
        let reason = "it is not the part that was committed";
        Err(Error::damaged(self.keys.part(writer), reason))
    }
}

impl Source for Checkpoint {
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.layout.all_names().collect();
        names.sort_unstable();
        names
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        let mut aliases = self.layout.aliases().clone();
        let mut first: BTreeMap<(&str, &str), &str> = BTreeMap::new();
        for (name, Derived { of, dtype }) in self.layout.derived() {
            let known = *first.entry((of, dtype.name())).or_insert(name);
            if known != name {
                aliases.insert(name.clone(), known.to_string());
            }
        }
        aliases
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        let derived = self.layout.derived().get(name);
        let stored = derived.map_or(name, |derived| &derived.of);
        let spec = self.layout.spec(self.layout.find(stored)?);
        Some(StoredTensor {
            dtype: derived.map_or(spec.dtype(), |derived| derived.dtype),
            shape: spec.shape().to_vec(),
        })
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        if let Some(Derived { of, dtype }) = self.layout.derived().get(name) {
            let mut pieces = self.pieces(of, region)?;
            for piece in &mut pieces {
                piece.file = derived::imagined_file(self.manifest.writers(), piece.file, *dtype);
                piece.offset = derived::narrowed(piece.offset);
            }
            return Ok(pieces);
        }
        let Some(tensor) = self.layout.find(name) else {
            return Ok(Vec::new());
        };
        let mut pieces = Vec::new();
        for writer in self.assignment.writers_of(tensor, region)? {
            let items = self.assignment.writer(writer)?;
            let met = items
                .of_tensor(tensor)
                .filter(|item| item.piece.region.meets(region));
            pieces.extend(met.map(|item| StoredPiece {
                file: writer,
                offset: item.offset,
                piece: item.piece.clone(),
                strides: None,
            }));
        }
        Ok(pieces)
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        if let Some((writer, dtype)) = derived::imagined(self.manifest.writers(), file) {
            let items = self.assignment.writer(writer)?;
            let stored = self.open_file(writer)?;
            return Ok(derived::cast_file(
                stored,
                self.layout.clone(),
                items,
                dtype,
            ));
        }
        let part = self.part(file)?;
        let (ReadPart { part, .. }, blocks) = part.as_ref();
        let entry = part.file.as_ref().ok_or_else(|| {
            Error::damaged(self.keys.part(file), "it names no data file, but should")
        })?;
        let stored = self.open_stored(file, entry, blocks.clone());
        let mut stored = stored.map_err(|error| self.explain(error))?;
        if let Some(statement) = &self.statement {
            stored.reader = authentic(self, statement, file, stored.reader)?;
        }
        Ok(Arc::new(stored))
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut assets = Vec::new();
        for (name, entry) in &self.manifest.assets {
            let key = self.keys.asset(name);
            let bytes = copies::nearest(self.store.as_ref(), &key, |tier| {
                let bytes = tier.get(&key).doing(|| format!("read `{key}`"))?;
                match sha256_hex(&bytes) == entry.sha256 {
                    true => Ok(bytes),
                    false => Err(Error::damaged(
                        &key,
                        "its bytes are not the ones that were saved",
                    )),
                }
            });
            let bytes = bytes.map_err(|error| self.explain(error))?;
            assets.push((name.clone(), bytes));
        }
        Ok(assets)
    }

    fn places(&self) -> Vec<Location> {
        self.store.locations(&step_folder(self.manifest.step))
    }

    fn mend(&self) -> Vec<String> {
        let tiers = self.store.tiers();
        tiers.map_or(Vec::new(), |tiers| self.mend_files(tiers))
    }
}
