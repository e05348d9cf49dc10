//! A committed checkpoint, opened.

use crate::Error;
use crate::assign::Assignment;
use crate::checksum::sha256_hex;
use crate::derived::{self, Derived};
use crate::error::StoreContext;
use crate::layout::Layout;
use crate::load::{LoadOptions, LoadReport, load};
use crate::manifest::{DIGEST_DIGITS, Manifest};
use crate::names::{AttemptKeys, commit_key};
use crate::part::{ReadPart, read_head, read_whole};
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use crate::target::Target;
use cairn_sharding::Region;
use cairn_store::Store;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A committed step: its manifest is read, its data is not.
#[derive(Debug)]
pub struct Checkpoint {
    store: Arc<dyn Store>,
    manifest: Manifest,
    layout: Arc<Layout>,
    assignment: Assignment,
    keys: AttemptKeys,
}

impl Checkpoint {
    /// Opens `step` of the run that `store` is rooted at. Reads `COMMIT` and nothing else.
    ///
    /// # Errors
    /// If the step is not committed, or its manifest is damaged or too new.
    pub fn open(store: Arc<dyn Store>, step: u64) -> Result<Self, Error> {
        let key = commit_key(step);
        let bytes = match store.get(&key) {
            Err(cairn_store::Error::NotFound { .. }) => {
                return Err(Error::Incomplete {
                    step,
                    reason: format!("`{key}` does not exist"),
                });
            }
            result => result.doing(|| format!("read `{key}`"))?,
        };
        let manifest = Manifest::decode(&key, &bytes)?;
        if manifest.step != step {
            let reason = format!("it is the manifest of step {}", manifest.step);
            return Err(Error::damaged(key, reason));
        }
        let layout = Arc::new(manifest.layout.clone());
        Ok(Self {
            keys: AttemptKeys::new(step, &manifest.attempt),
            assignment: Assignment::new(layout.clone()),
            layout,
            manifest,
            store,
        })
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

    /// The key of the file that `writer`'s data lies in.
    pub fn data_key(&self, writer: usize) -> String {
        self.keys.data(writer)
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
        let part = read_head(self.store.as_ref(), &self.keys, rank)?;
        self.check_digest(&part)?;
        Ok(Some(part.part.rank_values))
    }

    /// Loads `targets`, which may belong to any number of ranks of any layout.
    ///
    /// # Errors
    /// See [`load`].
    pub fn load(&self, targets: Vec<Target>, options: &LoadOptions) -> Result<LoadReport, Error> {
        load(self, targets, options)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn keys(&self) -> &AttemptKeys {
        &self.keys
    }

    /// The part of a writer, checked against the manifest, with its table of CRCs.
    pub(crate) fn part(&self, writer: usize) -> Result<(ReadPart, Vec<u32>), Error> {
        let (part, crcs) = read_whole(self.store.as_ref(), &self.keys, writer)?;
        self.check_digest(&part)?;
        Ok((part, crcs))
    }

    fn check_digest(&self, part: &ReadPart) -> Result<(), Error> {
        let writer = part.part.writer;
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
        let (part, crcs) = self.part(file)?;
        let key = self.keys.data(file);
        let entry = part.part.file.ok_or_else(|| {
            Error::damaged(self.keys.part(file), "it names no data file, but should")
        })?;
        let reader = self.store.reader(&key).doing(|| format!("open `{key}`"))?;
        if reader.len() != entry.len_bytes {
            let reason = format!(
                "it has {} bytes, {} were written",
                reader.len(),
                entry.len_bytes
            );
            return Err(Error::damaged(key, reason));
        }
        Ok(Arc::new(SourceFile {
            key,
            reader,
            data_start: entry.data_start,
            crcs: Some(crcs),
        }))
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut assets = Vec::new();
        for (name, entry) in &self.manifest.assets {
            let key = self.keys.asset(name);
            let bytes = self.store.get(&key).doing(|| format!("read `{key}`"))?;
            if sha256_hex(&bytes) != entry.sha256 {
                return Err(Error::damaged(
                    key,
                    "its bytes are not the ones that were saved",
                ));
            }
            assets.push((name.clone(), bytes));
        }
        Ok(assets)
    }
}
