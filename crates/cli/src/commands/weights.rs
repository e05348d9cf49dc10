//! Which weights a command writes: from what was opened to the tensors that are asked for.

use super::transform::transformed;
use crate::args::{Transform, Weights as Args};
use crate::error::Error;
use crate::open::Opened;
use cairn::checkpoint::ema::{MAX_COMPUTED_BUFFER_BYTES, averaged, is_stored_average};
use cairn::checkpoint::{
    Checkpoint, Chosen, MAX_LOAD_BUFFER_BYTES, MAX_TRANSFORM_BUFFER_BYTES, Pattern, SharedSource,
    Source, recast,
};
use cairn::tensor::element_count;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Plain values, by name.
pub(crate) type Values = BTreeMap<String, Value>;

/// Tensors to be written, and what comes along with them.
pub(crate) struct Weights {
    pub(crate) source: SharedSource,
    pub(crate) values: Values,
    /// The step they are of, and its tags.
    pub(crate) step: Option<u64>,
    pub(crate) tags: Vec<String>,
    /// Changes with what is read and what is made of it.
    pub(crate) identity: String,
    /// The bytes that are read to write all of them once.
    pub(crate) read_bytes: u64,
    /// Tensors that are there and were not asked for.
    pub(crate) left_out: usize,
    /// The most memory that reading them takes.
    pub(crate) buffer_bytes: u64,
}

impl Weights {
    /// All of `opened`.
    pub(crate) fn all(opened: Opened) -> Result<Self, Error> {
        let identity = opened.identity()?;
        let manifest = opened.checkpoint().map(Checkpoint::manifest);
        let step = manifest.map(|manifest| manifest.step);
        let step = step.or_else(|| opened.model()?.step);
        let tags = opened
            .checkpoint()
            .map_or(Ok(Vec::new()), Checkpoint::tags)?;
        let values = opened.values().clone();
        let source = opened.into_source();
        Ok(Self {
            read_bytes: len_bytes(source.as_ref()),
            source,
            values,
            step,
            tags,
            identity,
            left_out: 0,
            buffer_bytes: (MAX_LOAD_BUFFER_BYTES + MAX_COMPUTED_BUFFER_BYTES) as u64,
        })
    }

    /// What `args` choose of `opened`.
    pub(crate) fn choose(args: &Args, opened: Opened) -> Result<Self, Error> {
        let mut weights = Self::all(opened)?;
        weights.identity.push_str(&format!("\n{args:?}"));
        weights.buffer_bytes = MAX_LOAD_BUFFER_BYTES as u64;
        if let Some(label) = &args.ema {
            weights.source = Arc::new(averaged(weights.source, &weights.values, label)?);
            weights.values.retain(|name, _| !is_stored_average(name));
            weights.buffer_bytes += MAX_COMPUTED_BUFFER_BYTES as u64;
        }
        if !args.keys.is_empty() {
            check_patterns(&args.keys, weights.source.as_ref())?;
            weights.retain(|name| args.keys.iter().any(|pattern| pattern.matches(name)));
        }
        if !args.drop.is_empty() {
            check_patterns(&args.drop, weights.source.as_ref())?;
            weights.retain(|name| !args.drop.iter().any(|pattern| pattern.matches(name)));
        }
        weights.read_bytes = len_bytes(weights.source.as_ref());
        if !args.transform.recipe.is_empty() {
            weights.transform(&args.transform)?;
        }
        if let Some(dtype) = args.dtype {
            weights.source = recast(weights.source, dtype, |_| true)?;
            weights.buffer_bytes += MAX_COMPUTED_BUFFER_BYTES as u64;
        }
        Ok(weights)
    }

    /// Puts what recipes make of the tensors in their place.
    fn transform(&mut self, args: &Transform) -> Result<(), Error> {
        let made = transformed(args, self.source.clone())?;
        for warning in made.warnings {
            tracing::warn!("{warning}");
        }
        self.identity.push_str(&made.identity);
        self.buffer_bytes += MAX_TRANSFORM_BUFFER_BYTES as u64;
        self.source = made.source;
        Ok(())
    }

    /// An average that was just worked out.
    pub(crate) fn of_average(source: SharedSource, values: Values) -> Self {
        Self {
            read_bytes: len_bytes(source.as_ref()),
            source,
            values,
            step: None,
            tags: Vec::new(),
            identity: String::new(),
            left_out: 0,
            buffer_bytes: (MAX_LOAD_BUFFER_BYTES + MAX_COMPUTED_BUFFER_BYTES) as u64,
        }
    }

    /// Leaves out stored averages.
    pub(crate) fn without_averages(&mut self) {
        self.retain(|name| !is_stored_average(name));
    }

    /// Leaves out tensors whose names are not to be kept.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        let before = self.source.names().len();
        let chosen = Chosen::new(self.source.clone(), is_kept);
        self.read_bytes = self
            .read_bytes
            .saturating_sub(len_bytes(self.source.as_ref()) - len_bytes(&chosen));
        self.left_out += before - chosen.names().len();
        self.source = Arc::new(chosen);
    }
}

/// The bytes of all tensors; one with two names counts twice, as it is written twice.
fn len_bytes(source: &dyn Source) -> u64 {
    let stored = source
        .names()
        .into_iter()
        .filter_map(|name| source.find(name));
    let len = stored.filter_map(|tensor| {
        let elements = element_count(&tensor.shape)?;
        tensor.dtype.len_bytes(elements)
    });
    len.map(|len| len as u64).sum()
}

/// The names that match any pattern, all if there is none.
pub(super) fn chosen<'a>(
    source: &'a dyn Source,
    patterns: &[Pattern],
) -> Result<Vec<&'a str>, Error> {
    check_patterns(patterns, source)?;
    let wanted = |name: &&str| patterns.is_empty() || patterns.iter().any(|p| p.matches(name));
    Ok(source.names().into_iter().filter(wanted).collect())
}

/// An error if a pattern is for no tensor.
pub(super) fn check_patterns(patterns: &[Pattern], source: &dyn Source) -> Result<(), Error> {
    let names = source.names();
    for pattern in patterns {
        if !names.iter().any(|name| pattern.matches(name)) {
            return Err(Error::NoSuchNames {
                pattern: pattern.to_string(),
                near: pattern.nearest(names.iter().copied()).map(Into::into),
            });
        }
    }
    Ok(())
}
