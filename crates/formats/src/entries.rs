//! Named values in a folder: files, or what an index says lies in some of them.

use crate::Error;
use cairn_store::Store;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Where a value lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a range of an object.
    Object(String, Range<u64>),
    /// Here: it was read with the index, which is the object of this name.
    Held(String, Vec<u8>),
}

/// Values by name.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) places: BTreeMap<String, Place>,
}

impl Place {
    /// The object that it is in.
    pub(crate) fn key(&self) -> &str {
        match self {
            Place::Object(key, _) | Place::Held(key, _) => key,
        }
    }

    /// Its length.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Place::Object(_, range) => range.end - range.start,
            Place::Held(_, bytes) => bytes.len() as u64,
        }
    }

    /// Part of it; `None` if it has no such part.
    pub(crate) fn part(&self, range: Range<u64>) -> Option<Place> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        Some(match self {
            Place::Object(key, whole) => {
                let part = whole.start + range.start..whole.start + range.end;
                Place::Object(key.clone(), part)
            }
            Place::Held(key, bytes) => {
                let index = |at: u64| usize::try_from(at).ok();
                let part = bytes.get(index(range.start)?..index(range.end)?)?;
                Place::Held(key.clone(), part.to_vec())
            }
        })
    }

    /// The value, which has at most `max_len` bytes.
    pub(crate) fn read(&self, store: &dyn Store, max_len: u64) -> Result<Vec<u8>, Error> {
        if self.len() > max_len {
            let reason = format!("a value has {} bytes, which is over {max_len}", self.len());
            return Err(Error::damaged(self.key(), reason));
        }
        match self {
            Place::Held(_, bytes) => Ok(bytes.clone()),
            Place::Object(key, range) => {
                let mut bytes = vec![0; usize::try_from(self.len()).unwrap_or(usize::MAX)];
                store.reader(key)?.read_at(range.start, &mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

impl Entries {
    /// The files below a folder, by their paths in it.
    pub(crate) fn of_folder(store: &dyn Store, folder: &str) -> Result<Self, Error> {
        let mut places = BTreeMap::new();
        for meta in store.list(folder)? {
            let name = meta.key.strip_prefix(folder).unwrap_or(&meta.key);
            let name = name.trim_start_matches('/').to_string();
            places.insert(name, Place::Object(meta.key, 0..meta.len));
        }
        Ok(Self { places })
    }

    /// The values whose names begin with `prefix`, by the rest of their names.
    pub(crate) fn below<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Place)> {
        let found = self.places.range(prefix.to_string()..);
        found.map_while(move |(name, place)| Some((name.strip_prefix(prefix)?, place)))
    }

    /// Checks that objects have the bytes that values lie in.
    pub(crate) fn check(&self, lens: &HashMap<String, u64>) -> Result<(), Error> {
        for (name, place) in &self.places {
            if let Place::Object(key, range) = place {
                let len = lens.get(key).copied().unwrap_or(0);
                if range.start > range.end || range.end > len {
                    let reason = format!("`{name}` is at bytes {range:?}, it has {len}");
                    return Err(Error::damaged(key, reason));
                }
            }
        }
        Ok(())
    }
}
