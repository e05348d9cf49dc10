//! Tensors made of others by a recipe.

use crate::errors::OrRaise;
use cairn::checkpoint::{SharedSource, Transformed, recipe_settings, recipe_tensors};
use cairn::recipe::library::{self, depends_on_shards};
use cairn::recipe::{Tensor, Tensors};
use cairn::sharding::TensorSpec;
use pyo3::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A recipe, and what it is asked for.
pub(crate) struct Asked<'a> {
    /// A text or JSON, or a name.
    pub(crate) recipe: &'a str,
    /// Whether it is the name of one that ships with Cairn.
    pub(crate) shipped: bool,
    pub(crate) reverse: bool,
    /// In the place of what the model's `config.json` says.
    pub(crate) settings: BTreeMap<String, String>,
    /// The tensors that must come out.
    pub(crate) targets: Option<Tensors>,
}

/// What a recipe makes of a source, and its warnings.
pub(crate) fn transformed(
    source: SharedSource,
    asked: &Asked,
) -> PyResult<(SharedSource, Vec<String>)> {
    let mut settings = recipe_settings(source.as_ref()).or_raise()?;
    for (name, value) in &asked.settings {
        settings.set(name, value);
    }
    let program = match asked.shipped {
        true => {
            let mut shipped = library::find(asked.recipe).or_raise()?;
            if asked.reverse {
                shipped = shipped.opposite();
            }
            shipped.program(&settings)
        }
        false => library::program(asked.recipe, asked.reverse, &settings),
    };
    let tensors = recipe_tensors(source.as_ref(), depends_on_shards(asked.recipe)).or_raise()?;
    let compiled = program
        .or_raise()?
        .compile(&tensors, asked.targets.as_ref());
    let compiled = compiled.or_raise()?;
    let made = Transformed::new(source, &compiled).or_raise()?;
    Ok((Arc::new(made), compiled.warnings))
}

/// Tensors that a recipe must give.
pub(crate) fn wanted<'a>(
    recipe: &str,
    specs: impl Iterator<Item = (&'a str, &'a TensorSpec)>,
) -> Tensors {
    let count = depends_on_shards(recipe);
    let tensor = |spec: &TensorSpec| Tensor {
        dtype: spec.dtype(),
        shape: spec.shape().to_vec(),
        shards: if count { shard_count(spec) } else { 1 },
    };
    specs
        .map(|(name, spec)| (name.to_owned(), tensor(spec)))
        .collect()
}

/// How many different places the shards of a tensor begin at.
fn shard_count(spec: &TensorSpec) -> usize {
    let ranks = (0..=spec.max_rank()).filter(|rank| spec.holds(*rank));
    let boxes = ranks.flat_map(|rank| spec.local_boxes(rank));
    let places: BTreeSet<Vec<usize>> = boxes.map(|held| held.region.offset).collect();
    places.len().max(1)
}
