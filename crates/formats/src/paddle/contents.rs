//! Everything in a pickle that Paddle wrote, by name.

use super::array::{self, Array, is_array};
use crate::{Error, pickle, tree};
use cairn_store::ObjectReader;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// Arrays and values of a pickle; nested keys are joined with `.`.
pub(super) struct Contents {
    pub(super) arrays: BTreeMap<String, Array>,
    /// Other names of arrays.
    pub(super) aliases: BTreeMap<String, String>,
    pub(super) values: BTreeMap<String, serde_json::Value>,
}

impl Contents {
    /// Reads the pickle that is all of `reader`, called `file` in errors.
    pub(super) fn read(file: &str, reader: &dyn ObjectReader) -> Result<Self, Error> {
        let pickle = pickle::read(file, reader, 0..reader.len(), &array::policy())?;
        let tree = tree::flatten(file, reader, pickle.root(), |node| {
            Ok(is_array(node).then_some(node))
        })?;
        let mut contents = Self {
            arrays: BTreeMap::new(),
            aliases: BTreeMap::new(),
            values: tree.values,
        };
        let mut first_names: HashMap<u32, String> = HashMap::new();
        for (name, node) in tree.tensors {
            match first_names.entry(node.id()) {
                Entry::Occupied(first) => {
                    contents.aliases.insert(name, first.get().clone());
                }
                Entry::Vacant(new) => {
                    new.insert(name.clone());
                    contents.arrays.insert(name, array::array(file, node)?);
                }
            }
        }
        Ok(contents)
    }
}
