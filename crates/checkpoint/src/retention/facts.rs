//! What a policy decides by.

use crate::Error;
use crate::clock::unix_seconds;
use crate::lines::{History, Parent};
use crate::manifest::Manifest;
use crate::state::METRICS;
use cairn_store::Store;
use serde_json::Value;
use std::collections::BTreeMap;

/// What is known of a good step without looking at its tensors.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Facts {
    pub(super) step: u64,
    pub(super) line: u64,
    /// The step that came before it.
    pub(super) parent: Option<Parent>,
    /// When it was saved, in seconds from 1970.
    pub(super) created: Option<u64>,
    pub(super) metrics: BTreeMap<String, f64>,
    pub(super) tags: Vec<String>,
}

impl Facts {
    /// Those of a step, with the tags that it was saved with.
    pub(super) fn of(manifest: &Manifest) -> Self {
        let metrics = manifest.values.get(METRICS).and_then(Value::as_object);
        let metrics = metrics.into_iter().flatten();
        let numbers = metrics.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
        Self {
            step: manifest.step,
            line: manifest.line,
            parent: manifest.parent.clone(),
            created: unix_seconds(&manifest.created),
            metrics: numbers.collect(),
            tags: manifest.tags.clone(),
        }
    }
}

/// Which of `steps` led to the one that was committed last.
pub(super) fn history(store: &dyn Store, steps: &[Facts]) -> Result<History, Error> {
    let places = steps.iter();
    let places = places.map(|facts| (facts.line, facts.step, facts.parent.as_ref()));
    History::read(store, places)
}
