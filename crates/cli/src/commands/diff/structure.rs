//! What two sources have in common, before any value is looked at.

use super::renames::renames;
use crate::args::Diff as Args;
use crate::commands::weights::chosen;
use crate::error::Error;
use crate::names::natural;
use cairn::checkpoint::{Pattern, SharedSource, StoredTensor};
use cairn::tensor::element_count;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A tensor that one side lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Lonely {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
}

/// Tensors that are probably the same under another name.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Renamed {
    pub(super) left: String,
    pub(super) right: String,
    pub(super) count: usize,
}

/// A tensor whose shape or type is another.
#[derive(Debug, Serialize)]
pub(super) struct Changed {
    pub(super) name: String,
    pub(super) left: String,
    pub(super) right: String,
}

/// A plain value that is another; `null` where there is none.
#[derive(Debug, Serialize)]
pub(super) struct ChangedValue {
    pub(super) name: String,
    pub(super) left: Value,
    pub(super) right: Value,
}

/// The outcome.
#[derive(Debug, Default)]
pub(super) struct Structure {
    /// Tensors to compare, by the names each side stores them under.
    pub(super) pairs: Vec<(String, String)>,
    /// The bytes of all pairs, on both sides.
    pub(super) len_bytes: u64,
    pub(super) only_left: Vec<Lonely>,
    pub(super) only_right: Vec<Lonely>,
    pub(super) renamed: Vec<Renamed>,
    pub(super) changed: Vec<Changed>,
}

/// A side's tensors by all their names, and which names are only other ones.
struct Names {
    tensors: BTreeMap<String, StoredTensor>,
    aliases: BTreeMap<String, String>,
}

impl Structure {
    pub(super) fn new(
        left: &SharedSource,
        right: &SharedSource,
        args: &Args,
    ) -> Result<Self, Error> {
        // A pattern may be for names of one side only, but not of neither.
        let (ours, theirs) = match (Names::new(left, &args.keys), Names::new(right, &args.keys)) {
            (Err(error), Err(_)) => return Err(error),
            (ours, theirs) => (ours.unwrap_or_default(), theirs.unwrap_or_default()),
        };
        let mut structure = Self {
            only_left: ours.lacking_in(&theirs),
            only_right: theirs.lacking_in(&ours),
            ..Self::default()
        };
        structure.renamed = renames(&structure.only_left, &structure.only_right);
        let mut seen = BTreeSet::new();
        for (name, tensor) in &ours.tensors {
            let Some(twin) = theirs.tensors.get(name) else {
                continue;
            };
            let pair = (ours.stored(name), theirs.stored(name));
            if seen.insert(pair.clone()) {
                structure.add(pair, tensor, twin, args.any_dtype);
            }
        }
        Ok(structure)
    }

    fn add(
        &mut self,
        pair: (String, String),
        tensor: &StoredTensor,
        twin: &StoredTensor,
        any_dtype: bool,
    ) {
        let same_shape = tensor.shape == twin.shape;
        if !same_shape || (tensor.dtype != twin.dtype && !any_dtype) {
            self.changed.push(Changed {
                name: pair.0.clone(),
                left: describe(tensor),
                right: describe(twin),
            });
        }
        if same_shape {
            self.len_bytes += len_bytes(tensor) + len_bytes(twin);
            self.pairs.push(pair);
        }
    }
}

impl Names {
    fn new(source: &SharedSource, keys: &[Pattern]) -> Result<Self, Error> {
        let names = chosen(source.as_ref(), keys)?.into_iter();
        Ok(Self {
            tensors: names
                .filter_map(|name| Some((name.to_string(), source.find(name)?)))
                .collect(),
            aliases: source.aliases(),
        })
    }

    fn stored(&self, name: &str) -> String {
        let stored = self.aliases.get(name);
        stored.map_or(name, String::as_str).to_string()
    }

    fn lacking_in(&self, other: &Self) -> Vec<Lonely> {
        let names = self.tensors.iter();
        let mut lonely: Vec<Lonely> = names
            .filter(|(name, _)| !other.tensors.contains_key(*name))
            .map(|(name, tensor)| Lonely {
                name: name.clone(),
                dtype: tensor.dtype.to_string(),
                shape: tensor.shape.clone(),
            })
            .collect();
        lonely.sort_by(|one, other| natural(&one.name).cmp(&natural(&other.name)));
        lonely
    }
}

impl Default for Names {
    fn default() -> Self {
        let (tensors, aliases) = Default::default();
        Self { tensors, aliases }
    }
}

/// Plain values that are not the same.
pub(super) fn changed_values(
    left: &BTreeMap<String, Value>,
    right: &BTreeMap<String, Value>,
) -> Vec<ChangedValue> {
    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| left.get(*name) != right.get(*name));
    let value = |side: &BTreeMap<String, Value>, name| side.get(name).cloned().unwrap_or_default();
    changed
        .map(|name| ChangedValue {
            name: name.clone(),
            left: value(left, name),
            right: value(right, name),
        })
        .collect()
}

fn describe(tensor: &StoredTensor) -> String {
    format!("{}{:?}", tensor.dtype, tensor.shape)
}

fn len_bytes(tensor: &StoredTensor) -> u64 {
    let len = element_count(&tensor.shape).and_then(|count| tensor.dtype.len_bytes(count));
    len.map_or(0, |len| len as u64)
}
