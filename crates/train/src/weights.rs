//! The weights of a model, whole, to look at or to generate with.

use crate::Error;
use cairn_arena::Bucket;
use cairn_checkpoint::{
    Checkpointer, LoadOptions, Place, SharedSource, Strictness, Target, World, find, load, recast,
};
use cairn_model::Block;
use cairn_sharding::{Mesh, Sharding, TensorSpec};
use cairn_tensor::DType;
use std::sync::Arc;

/// Opens what lies at `path`: a model in any format, a step, or the newest whole step of a run.
///
/// # Errors
/// If there is no such thing, or it is damaged.
pub fn open(path: &str) -> Result<SharedSource, Error> {
    let reader = |store| Checkpointer::new(store, World::single());
    Ok(match find(path)? {
        Place::Folder(model) | Place::File(model) => Arc::new(model),
        Place::Step(store, step) => Arc::new(reader(store).open(step)?),
        Place::Run(store) => Arc::new(reader(store).latest()?.checkpoint),
    })
}

/// Loads the weights of each block as one slice, whatever `source` stores them as.
///
/// # Errors
/// If a weight is missing, has another shape or cannot be read.
pub fn whole(
    source: &SharedSource,
    blocks: &[Box<dyn Block<f32>>],
) -> Result<Vec<Vec<f32>>, Error> {
    let source = recast(source.clone(), DType::F32, |_| true)?;
    blocks
        .iter()
        .map(|block| block_weights(&source, block.as_ref()))
        .collect()
}

fn block_weights(source: &SharedSource, block: &dyn Block<f32>) -> Result<Vec<f32>, Error> {
    let mesh = Mesh::single();
    let bucket = Bucket::new(block.parameters(), 0, 1);
    let mut weights = vec![0_f32; bucket.len()];
    let mut rest: &mut [u8] = bytemuck::cast_slice_mut(&mut weights);
    let mut targets = Vec::new();
    for slot in bucket.slots() {
        let (bytes, after) = rest.split_at_mut(slot.range.len() * size_of::<f32>());
        rest = after;
        let shape = &slot.parameter.shape;
        let sharding = Sharding::replicated(&mesh, shape.len());
        let spec = TensorSpec::new(DType::F32, shape.clone(), sharding)?;
        targets.push(Target::new(&slot.parameter.name, &spec, 0, bytes)?);
    }
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    load(source.as_ref(), targets, &options)?;
    Ok(weights)
}
