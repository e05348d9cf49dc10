//! A part of a source: the names under some prefixes.

use crate::Error;
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use cairn_sharding::Region;
use cairn_store::Location;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A source of which only the names under `prefixes` count: `model` is there with everything that begins with `model.`.
///
/// Loading a part of a checkpoint this way, what is beside the part is not unexpected.
pub struct Scope<'a> {
    source: &'a dyn Source,
    prefixes: Vec<String>,
}

impl<'a> Scope<'a> {
    /// The part of `source` under `prefixes`.
    pub fn new(source: &'a dyn Source, prefixes: Vec<String>) -> Self {
        Self { source, prefixes }
    }

    fn contains(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| {
            let rest = name.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

impl Source for Scope<'_> {
    fn names(&self) -> Vec<&str> {
        let mut names = self.source.names();
        names.retain(|name| self.contains(name));
        names
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        let mut aliases = self.source.aliases();
        aliases.retain(|name, _| self.contains(name));
        aliases
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        self.source.find(name).filter(|_| self.contains(name))
    }

    fn keeps(&self, name: &str) -> bool {
        self.contains(name) && self.source.keeps(name)
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        self.source.pieces(name, region)
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        self.source.open_file(file)
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
