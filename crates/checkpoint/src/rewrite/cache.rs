//! A source that is asked for neighbouring parts of the same tensors again and again.

use crate::Error;
use crate::source::{OpenFiles, Source, SourceFile, StoredPiece, StoredTensor};
use cairn_sharding::Region;
use cairn_store::Location;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The most files kept open.
const MAX_OPEN_FILES: usize = 64;

/// Threads that look for pieces. In some formats that takes small reads, which mostly wait.
const LOOKUP_THREADS: usize = 4;

/// Keeps files open between loads, and remembers where the tensors lie that are wanted now.
pub(super) struct Cached<'a> {
    source: &'a dyn Source,
    open: OpenFiles,
    known: Mutex<HashMap<String, Vec<StoredPiece>>>,
}

impl<'a> Cached<'a> {
    pub(super) fn new(source: &'a dyn Source) -> Self {
        Self {
            source,
            open: OpenFiles::new(MAX_OPEN_FILES),
            known: Mutex::default(),
        }
    }

    /// Finds all pieces of the tensors `names`, several at a time, and forgets those of others.
    ///
    /// What cannot be found is left to fail where it is needed.
    pub(super) fn look_up(&self, names: &BTreeSet<&str>) {
        let mut known = lock(&self.known);
        known.retain(|name, _| names.contains(name.as_str()));
        let new = names.iter().filter(|name| !known.contains_key(**name));
        let new: Vec<&str> = new.copied().collect();
        drop(known);
        let next = Mutex::new(new.iter());
        thread::scope(|scope| {
            for _ in 0..LOOKUP_THREADS.min(new.len()) {
                scope.spawn(|| {
                    while let Some(name) = { lock(&next).next() } {
                        self.look_up_one(name);
                    }
                });
            }
        });
    }

    fn look_up_one(&self, name: &str) {
        let whole = self.source.find(name);
        let whole = whole.map(|stored| Region::whole(&stored.shape));
        if let Some(Ok(pieces)) = whole.map(|whole| self.source.pieces(name, &whole)) {
            lock(&self.known).insert(name.to_string(), pieces);
        }
    }
}

impl Source for Cached<'_> {
    fn names(&self) -> Vec<&str> {
        self.source.names()
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        self.source.aliases()
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        self.source.find(name)
    }

    fn keeps(&self, name: &str) -> bool {
        self.source.keeps(name)
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        match lock(&self.known).get(name) {
            Some(known) => {
                let meets = |stored: &&StoredPiece| stored.piece.region.meets(region);
                Ok(known.iter().filter(meets).cloned().collect())
            }
            None => self.source.pieces(name, region),
        }
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        self.open.open(self.source, file)
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.source.assets()
    }

    fn places(&self) -> Vec<Location> {
        self.source.places()
    }

    fn mend(&self) -> Vec<String> {
        self.source.mend()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
