//! Which weights a command writes: from what was opened to the tensors that are asked for.

use super::transform::transformed;
use crate::args::{Transform, Weights as Args};
use crate::error::Error;
use crate::open::Opened;
use cairn::checkpoint::ema::{MAX_COMPUTED_BUFFER_BYTES, averaged, is_stored_average};
use cairn::checkpoint::{Chosen, MAX_LOAD_BUFFER_BYTES, Pattern, SharedSource, Source};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Plain values, by name.
pub(crate) type Values = BTreeMap<String, Value>;

/// Tensors to be written, and what comes along with them.
pub(crate) struct Weights {
    pub(crate) source: SharedSource,
    pub(crate) values: Values,
    /// Tensors that are there and were not asked for.
    pub(crate) left_out: usize,
    /// The most memory that reading them takes.
    pub(crate) buffer_bytes: u64,
}

impl Weights {
    /// What `args` choose of `opened`.
    pub(crate) fn choose(args: &Args, opened: Opened) -> Result<Self, Error> {
        let mut values = opened.values().clone();
        let mut source = opened.into_source();
        let mut buffer_bytes = MAX_LOAD_BUFFER_BYTES;
        if let Some(label) = &args.ema {
            source = Arc::new(averaged(source, &values, label)?);
            values.retain(|name, _| !is_stored_average(name));
            buffer_bytes += MAX_COMPUTED_BUFFER_BYTES;
        }
        let mut weights = Self {
            source,
            values,
            left_out: 0,
            buffer_bytes: buffer_bytes as u64,
        };
        if !args.keys.is_empty() {
            check_patterns(&args.keys, weights.source.as_ref())?;
            weights.retain(|name| args.keys.iter().any(|pattern| pattern.matches(name)));
        }
        if !args.drop.is_empty() {
            check_patterns(&args.drop, weights.source.as_ref())?;
            weights.retain(|name| !args.drop.iter().any(|pattern| pattern.matches(name)));
        }
        if !args.transform.recipe.is_empty() {
            weights.transform(&args.transform)?;
        }
        Ok(weights)
    }

    /// Puts what recipes make of the tensors in their place.
    fn transform(&mut self, args: &Transform) -> Result<(), Error> {
        let made = transformed(args, self.source.clone())?;
        for warning in made.warnings {
            tracing::warn!("{warning}");
        }
        self.source = made.source;
        Ok(())
    }

    /// Leaves out stored averages.
    pub(crate) fn without_averages(&mut self) {
        self.retain(|name| !is_stored_average(name));
    }

    /// Leaves out tensors whose names are not to be kept.
    fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        let before = self.source.names().len();
        let chosen = Chosen::new(self.source.clone(), is_kept);
        self.left_out += before - chosen.names().len();
        self.source = Arc::new(chosen);
    }
}

/// The names that match any pattern, all if there is none. A tensor that has two names is written under both.
pub(super) fn chosen<'a>(
    source: &'a dyn Source,
    patterns: &[Pattern],
) -> Result<Vec<&'a str>, Error> {
    check_patterns(patterns, source)?;
    let wanted = |name: &&str| patterns.is_empty() || patterns.iter().any(|p| p.matches(name));
    Ok(source.names().into_iter().filter(wanted).collect())
}

/// An error if a pattern is for no tensor.
fn check_patterns(patterns: &[Pattern], source: &dyn Source) -> Result<(), Error> {
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
