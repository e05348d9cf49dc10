//! A source in which tensors have other names.

use crate::Error;
use crate::computed::{SharedSource, not_there};
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use cairn_sharding::Region;
use cairn_store::Location;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `source` with the tensors `names` under the names they are paired with. All change at once, so that two can swap theirs.
///
/// # Errors
/// If there is no such tensor, or two would have one name.
pub fn renamed(
    source: SharedSource,
    names: &BTreeMap<String, String>,
) -> Result<SharedSource, Error> {
    let mut old_names = BTreeMap::new();
    for old in source.names() {
        let new = names.get(old).map_or(old, String::as_str);
        if let Some(other) = old_names.insert(new.to_string(), old.to_string()) {
            return Err(Error::State {
                name: old.to_string(),
                reason: format!("cannot be called `{new}`: so is `{other}`"),
            });
        }
    }
    if let Some(missing) = names.keys().find(|name| source.find(name).is_none()) {
        return Err(not_there(missing));
    }
    let aliases = source.aliases().into_iter();
    let new = |old: String| names.get(&old).cloned().unwrap_or(old);
    let aliases = aliases.map(|(alias, of)| (new(alias), new(of))).collect();
    Ok(Arc::new(Renamed {
        source,
        old_names,
        aliases,
    }))
}

struct Renamed {
    source: SharedSource,
    /// By their new names.
    old_names: BTreeMap<String, String>,
    aliases: BTreeMap<String, String>,
}

impl Source for Renamed {
    fn names(&self) -> Vec<&str> {
        self.old_names.keys().map(String::as_str).collect()
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        self.aliases.clone()
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        self.source.find(self.old_names.get(name)?)
    }

    fn keeps(&self, name: &str) -> bool {
        let old = self.old_names.get(name);
        old.is_some_and(|old| self.source.keeps(old))
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        match self.old_names.get(name) {
            Some(old) => self.source.pieces(old, region),
            None => Ok(Vec::new()),
        }
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
