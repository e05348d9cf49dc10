//! What a recipe is compiled against: the tensors of a source, and what is known of their model.

use crate::Error;
use crate::source::Source;
use cairn_recipe::library::Settings;
use cairn_recipe::{Tensor, Tensors};
use cairn_sharding::Region;
use std::collections::BTreeSet;

/// The side file that describes a model.
const CONFIG_FILE: &str = "config.json";

/// The tensors of a source, as recipes are compiled against them.
///
/// In how many shards each is held takes a look at all pieces; only layouts that depend on it ask for `shards`.
///
/// # Errors
/// If what is stored contradicts itself.
pub fn recipe_tensors(source: &dyn Source, shards: bool) -> Result<Tensors, Error> {
    let mut tensors = Tensors::new();
    for name in source.names() {
        let Some(found) = source.find(name) else {
            continue;
        };
        let shards = match shards {
            true => shard_count(source, name, &found.shape)?,
            false => 1,
        };
        let tensor = Tensor {
            dtype: found.dtype,
            shape: found.shape,
            shards,
        };
        tensors.insert(name.to_string(), tensor);
    }
    Ok(tensors)
}

/// How many different places the stored pieces of a tensor begin at.
fn shard_count(source: &dyn Source, name: &str, shape: &[usize]) -> Result<usize, Error> {
    let pieces = source.pieces(name, &Region::whole(shape))?;
    let boxes = pieces.iter().flat_map(|stored| stored.piece.boxes());
    let places: BTreeSet<Vec<usize>> = boxes.map(|held| held.region.offset).collect();
    Ok(places.len().max(1))
}

/// What the `config.json` that lies beside the tensors says; nothing if there is none.
///
/// # Errors
/// If the side files cannot be read.
pub fn recipe_settings(source: &dyn Source) -> Result<Settings, Error> {
    let assets = source.assets()?;
    let config = assets.iter().find(|(name, _)| name == CONFIG_FILE);
    let config = config.and_then(|(_, bytes)| serde_json::from_slice(bytes).ok());
    Ok(config.map_or_else(Settings::default, |config| Settings::from_config(&config)))
}
