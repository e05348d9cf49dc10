//! Groups along the axes of a mesh.

use crate::{Communicator, Error};
use cairn_sharding::Mesh;
use std::sync::Arc;

/// The group of the ranks that differ from this one along `axis` alone, in the order of that axis.
///
/// # Collective
/// Every rank of `world` calls it; a rank outside the mesh gets a group of its own.
///
/// # Errors
/// If the mesh has no such axis or more ranks than the world, or somebody does not call.
pub fn along(
    world: &dyn Communicator,
    mesh: &Mesh,
    axis: &str,
) -> Result<Arc<dyn Communicator>, Error> {
    let (rank, size) = (mesh.max_rank(), world.size());
    if rank >= size {
        return Err(Error::NoRank { rank, size });
    }
    let dim = mesh.axis(axis).map_err(|error| Error::Value {
        reason: error.to_string(),
    })?;
    let (color, key) = match mesh.coords_of(world.rank()) {
        Some(mut coords) => {
            let key = std::mem::take(&mut coords[dim]);
            // The first rank of the group gives it its color.
            (mesh.rank_at(&coords).unwrap_or_default(), key)
        }
        None => (world.rank(), 0),
    };
    world.split(color as u64, key as u64)
}
