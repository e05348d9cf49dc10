//! Shardings seen from the mesh: one placement for each axis, as PyTorch's DTensor writes them.

use cairn_tensor::ReduceOp;

use crate::{DimSharding, Error, Mesh, Sharding};

/// What one mesh axis does to a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Splits this dim.
    Shard(usize),
    /// Holds replicas.
    Replicate,
    /// Holds terms that are yet to be reduced.
    Partial(ReduceOp),
}

impl Sharding {
    /// The sharding of one placement for each mesh axis.
    ///
    /// Axes that split the same dim do so in mesh order, the first outermost.
    ///
    /// # Errors
    /// If there are not as many placements as axes, or a dim is outside the tensor.
    pub fn from_placements(
        mesh: &Mesh,
        ndim: usize,
        placements: &[Placement],
    ) -> Result<Sharding, Error> {
        let axes = mesh.axes().len();
        if placements.len() != axes {
            let placements = placements.len();
            return Err(Error::PlacementCount { placements, axes });
        }
        let mut dims = vec![DimSharding::WHOLE; ndim];
        let mut partial = Vec::new();
        for (axis, placement) in placements.iter().enumerate() {
            match *placement {
                Placement::Replicate => {}
                Placement::Partial(op) => partial.push((axis, op)),
                Placement::Shard(dim) => {
                    let out_of_range = Error::DimOutOfRange { dim, ndim };
                    dims.get_mut(dim).ok_or(out_of_range)?.axes.push(axis);
                }
            }
        }
        Sharding::new(mesh, dims)?.with_partial(partial)
    }
}

#[cfg(test)]
mod tests {
    use super::{Placement::*, *};

    #[test]
    fn placements_say_the_same_as_the_text() {
        let mesh = Mesh::new([("dp", 2), ("cp", 2), ("tp", 4)]).unwrap();
        let sharding =
            Sharding::from_placements(&mesh, 2, &[Shard(1), Replicate, Shard(1)]).unwrap();
        assert_eq!(sharding.to_string(), "-, dp+tp");
        let sharding =
            Sharding::from_placements(&mesh, 1, &[Partial(ReduceOp::Avg), Replicate, Shard(0)])
                .unwrap();
        assert_eq!(sharding.to_string(), "tp | avg(dp)");
    }

    #[test]
    fn a_placement_for_each_axis_and_dims_inside_the_tensor_are_asked_for() {
        let mesh = Mesh::new([("tp", 2)]).unwrap();
        let error = Sharding::from_placements(&mesh, 2, &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "0 placements were given for a mesh of 1 axes"
        );
        let error = Sharding::from_placements(&mesh, 0, &[Shard(0)]).unwrap_err();
        assert_eq!(error.to_string(), "dim 0 is outside a tensor of 0 dims");
    }
}
