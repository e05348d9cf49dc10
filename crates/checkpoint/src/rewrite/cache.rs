//! A source whose files stay open between loads.

use crate::Error;
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use cairn_sharding::Region;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// The most files kept open.
const MAX_OPEN_FILES: usize = 64;

pub(super) struct Cached<'a> {
    source: &'a dyn Source,
    open: Mutex<VecDeque<(usize, Arc<SourceFile>)>>,
}

impl<'a> Cached<'a> {
    pub(super) fn new(source: &'a dyn Source) -> Self {
        Self {
            source,
            open: Mutex::default(),
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

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        self.source.pieces(name, region)
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = open.iter().find(|(index, _)| *index == file) {
            return Ok(known.clone());
        }
        let opened = self.source.open_file(file)?;
        if open.len() == MAX_OPEN_FILES {
            open.pop_front();
        }
        open.push_back((file, opened.clone()));
        Ok(opened)
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.source.assets()
    }
}
