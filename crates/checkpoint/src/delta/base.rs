//! What the next save of a file may refer to: the blocks of a step that is committed.

use super::map::{BlockPlace, block_count};
use super::{BlockHash, MAX_BASES, hashes, pin};
use crate::Error;
use crate::error::chain;
use crate::names::AttemptKeys;
use crate::part::{Blocks, FileEntry, read_whole};
use crate::run::newest;
use crate::standing::committed_attempt;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use cairn_store::Store;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The blocks of a writer's file in a committed step: where each lies, its CRC, and its hash if it was worth one.
#[derive(Debug)]
pub(crate) struct Base {
    step: u64,
    attempt: String,
    layout_hash: u64,
    /// The keys of the files that blocks lie in; `None` for those whose blocks are to be written again.
    files: Vec<Option<String>>,
    places: Vec<BlockPlace>,
    crcs: Vec<u32>,
    hashes: Vec<Option<BlockHash>>,
    /// Whether its own file has only what was new.
    is_delta: bool,
}

impl Base {
    /// What a writer saved in an attempt at a step, which is committed. `map` is there if its file is a delta.
    pub(crate) fn new(
        (step, attempt): (u64, &str),
        layout_hash: u64,
        file: &FileEntry,
        Blocks { crcs, map }: Blocks,
        hashes: Vec<Option<BlockHash>>,
    ) -> Self {
        let keys = AttemptKeys::new(step, attempt);
        let own = |block| BlockPlace { file: 0, block };
        let places: Vec<BlockPlace> = match &map {
            Some(map) => map.places().collect(),
            None => (0..block_count(file.len_bytes)).map(own).collect(),
        };
        let bases = file.delta.iter().flat_map(|delta| delta.bases.clone());
        let files = [format!("{}/{}", keys.folder, file.name)].into_iter();
        let files = spared(files.chain(bases).collect(), &places);
        Self {
            step,
            attempt: attempt.to_string(),
            layout_hash,
            files,
            places,
            crcs,
            hashes,
            is_delta: map.is_some(),
        }
    }

    /// What `writer` saved in the newest step; `None` if it left nothing that can be referred to.
    fn newest(store: &dyn Store, writer: usize) -> Result<Option<Self>, Error> {
        let Some(step) = newest(store, &BTreeSet::new())? else {
            return Ok(None);
        };
        let Some(attempt) = committed_attempt(store, step)? else {
            return Ok(None);
        };
        let keys = AttemptKeys::new(step, &attempt);
        let (read, blocks) = read_whole(store, &keys, writer)?;
        let Some(file) = read.part.file else {
            return Ok(None);
        };
        let hashes = hashes::read(store, &keys, writer, &file.crcs_sha256)?;
        if hashes.len() as u64 != block_count(file.len_bytes) {
            return Ok(None);
        }
        let hash = read.part.layout_hash;
        let base = Self::new((step, &attempt), hash, &file, blocks, hashes);
        Ok(Some(base))
    }

    /// The files that blocks can be referred to in.
    pub(crate) fn files(&self) -> Vec<&str> {
        self.files.iter().flatten().map(String::as_str).collect()
    }

    /// The key of file number `file`.
    pub(crate) fn file(&self, file: usize) -> Option<&str> {
        self.files.get(file)?.as_deref()
    }

    /// Whether blocks with these CRCs, the first of which is number `first`, all changed, and had all changed in this step, too.
    pub(crate) fn keeps_changing(&self, first: usize, crcs: &[u32]) -> bool {
        let mut blocks = self.crcs.iter().zip(&self.places).skip(first).zip(crcs);
        self.is_delta && blocks.all(|((had, place), has)| had != has && place.file == 0)
    }

    /// Where the block number `index` of the image lies, if it had this hash.
    pub(crate) fn find(&self, index: usize, hash: BlockHash) -> Option<BlockPlace> {
        let place = *self.places.get(index)?;
        let same = *self.hashes.get(index)? == Some(hash);
        (same && self.files[place.file].is_some()).then_some(place)
    }
}

/// The files with the most blocks, so many that a file may refer to them all.
fn spared(files: Vec<String>, places: &[BlockPlace]) -> Vec<Option<String>> {
    let mut counts = vec![0_u64; files.len()];
    for place in places {
        counts[place.file] += 1;
    }
    let mut order: Vec<usize> = (0..files.len()).filter(|file| counts[*file] > 0).collect();
    order.sort_by_key(|file| Reverse(counts[*file]));
    order.truncate(MAX_BASES);
    let files = files.into_iter().enumerate();
    files
        .map(|(index, key)| order.contains(&index).then_some(key))
        .collect()
}

/// What the saves of one rank refer to.
#[derive(Debug, Default)]
pub(crate) struct Bases(Mutex<Known>);

#[derive(Debug, Default)]
enum Known {
    /// Nobody has looked into the store yet.
    #[default]
    Unasked,
    /// The next save is a full one.
    Nothing,
    Step(Arc<Base>),
}

impl Bases {
    /// The next save refers to this one, which is committed.
    pub(crate) fn set(&self, base: Option<Base>) {
        *self.lock() = base.map_or(Known::Nothing, |base| Known::Step(Arc::new(base)));
    }

    /// What can be referred to as far as is known; on the first call, what the newest step in the store has.
    fn get(&self, store: &dyn Store, writer: usize) -> Option<Arc<Base>> {
        let mut known = self.lock();
        if let Known::Unasked = *known {
            let found = Base::newest(store, writer).unwrap_or_else(|error| {
                tracing::debug!(error = %chain(&error), "nothing to refer to: saving in full");
                None
            });
            *known = found.map_or(Known::Nothing, |base| Known::Step(Arc::new(base)));
        }
        match &*known {
            Known::Step(base) => Some(base.clone()),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the file of one save may refer to those before it.
#[derive(Debug, Clone)]
pub(crate) struct Deltas {
    pub(crate) bases: Arc<Bases>,
    pub(crate) keys: AttemptKeys,
    pub(crate) writer: usize,
    pub(crate) layout_hash: u64,
}

impl Deltas {
    /// What this save refers to; its files are safe from pruners until the attempt is. `None` if it has to be a full one.
    ///
    /// The order matters: pin first, then look. A pruner takes `COMMIT` away before it looks for pins.
    pub(crate) fn base(&self, store: &dyn Store) -> Result<Option<Arc<Base>>, Error> {
        let base = self.bases.get(store, self.writer);
        let same_layout = |base: &Arc<Base>| base.layout_hash == self.layout_hash;
        let Some(base) = base.filter(same_layout) else {
            return Ok(None);
        };
        pin::put(store, &self.keys, self.writer, &base.files())?;
        let committed = committed_attempt(store, base.step);
        match committed.unwrap_or(None) {
            Some(attempt) if attempt == base.attempt => Ok(Some(base)),
            _ => {
                let step = base.step;
                tracing::info!(step, "the step before is gone: saving in full");
                Ok(None)
            }
        }
    }
}
