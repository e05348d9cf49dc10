//! A source whose files stay open between many small loads.

use crate::Error;
use crate::computed::SharedSource;
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use cairn_sharding::Region;
use cairn_store::Location;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// The most files of one source kept open: an average over many steps has many sources.
const MAX_OPEN_FILES: usize = 8;

/// A source that keeps the files it opened.
pub struct Kept {
    source: SharedSource,
    open: OpenFiles,
}

/// The files of a source that were opened last.
pub(crate) struct OpenFiles {
    most: usize,
    open: Mutex<VecDeque<(usize, Arc<SourceFile>)>>,
}

impl OpenFiles {
    /// Keeps at most `most` files open.
    pub(crate) fn new(most: usize) -> Self {
        let open = Mutex::default();
        Self { most, open }
    }

    /// The file, opened unless it is open.
    pub(crate) fn open(&self, source: &dyn Source, file: usize) -> Result<Arc<SourceFile>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = open.iter().find(|(index, _)| *index == file) {
            return Ok(known.clone());
        }
        let opened = source.open_file(file)?;
        if open.len() == self.most {
            open.pop_front();
        }
        open.push_back((file, opened.clone()));
        Ok(opened)
    }
}

impl Kept {
    /// Keeps the files of `source` open.
    pub fn new(source: SharedSource) -> Self {
        let open = OpenFiles::new(MAX_OPEN_FILES);
        Self { source, open }
    }
}

impl Source for Kept {
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
        self.source.pieces(name, region)
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        self.open.open(self.source.as_ref(), file)
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
