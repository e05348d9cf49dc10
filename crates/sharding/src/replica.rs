//! Which ranks hold the same.

use crate::{Mesh, Sharding};

/// Which of the equal holders of some pieces a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Replica {
    /// The place of this rank among the replicas, from 0.
    pub index: usize,
    /// How many ranks hold the same pieces.
    pub count: usize,
    /// The rank of replica 0, which stands for the group.
    pub leader: usize,
}

impl Sharding {
    /// Which replica the rank is, or `None` if it does not hold the tensor.
    ///
    /// Ranks with different terms of a partial value are no replicas of each other.
    pub fn replica(&self, rank: usize) -> Option<Replica> {
        let position = self.held_position(rank)?;
        let (mut index, mut count, mut leader) = (0, 1, position);
        for &axis in self.free_axes() {
            let (size, coord) = (
                self.mesh().axis_size(axis),
                self.mesh().coord(position, axis),
            );
            index = index * size + coord;
            count *= size;
            leader -= coord * self.mesh().stride(axis);
        }
        Some(Replica {
            index,
            count,
            leader: self.mesh().rank(leader),
        })
    }

    /// The ranks that hold exactly what `rank` holds, itself included, in the order of their
    /// coordinates; none if it does not hold the tensor.
    pub fn replica_ranks(&self, rank: usize) -> Vec<usize> {
        match self.holds(rank) {
            true => self.mesh().ranks_along(rank, self.free_axes()),
            false => Vec::new(),
        }
    }
}

impl Mesh {
    /// The ranks that differ from `rank` in their coordinates along `axes` at most, in row-major order;
    /// none if `rank` or an axis is not in the mesh.
    pub fn ranks_along(&self, rank: usize, axes: &[usize]) -> Vec<usize> {
        let Some(position) = self.position(rank) else {
            return Vec::new();
        };
        if axes.iter().any(|&axis| axis >= self.axes().len()) {
            return Vec::new();
        }
        let own = |axis: &usize| self.coord(position, *axis) * self.stride(*axis);
        let mut positions = vec![position - axes.iter().map(own).sum::<usize>()];
        for &axis in axes {
            positions = positions
                .into_iter()
                .flat_map(|from| (0..self.axis_size(axis)).map(move |at| (from, at)))
                .map(|(from, at)| from + at * self.stride(axis))
                .collect();
        }
        positions.into_iter().map(|at| self.rank(at)).collect()
    }
}
