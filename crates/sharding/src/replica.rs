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
    /// The ranks that differ from `rank` in their coordinates along `axes` at most, in row-major order of
    /// those coordinates, the first of `axes` outermost; none if `rank` or an axis is not in the mesh.
    pub fn ranks_along(&self, rank: usize, axes: &[usize]) -> Vec<usize> {
        (0..)
            .map_while(|index| self.rank_along(rank, axes, index))
            .collect()
    }

    /// The rank at place `index` of [`ranks_along`](Self::ranks_along).
    pub fn rank_along(&self, rank: usize, axes: &[usize], mut index: usize) -> Option<usize> {
        let mut position = self.position(rank)?;
        for &axis in axes.iter().rev() {
            let size = self.axes().get(axis)?.size;
            position -= self.coord(position, axis) * self.stride(axis);
            position += index % size * self.stride(axis);
            index /= size;
        }
        (index == 0).then(|| self.rank(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_along_axes_stand_in_the_order_of_the_axes() {
        let mesh = Mesh::new([("a", 2), ("b", 2), ("c", 2)]).unwrap();
        assert_eq!(mesh.ranks_along(5, &[]), [5]);
        assert_eq!(mesh.ranks_along(5, &[2]), [4, 5]);
        assert_eq!(mesh.ranks_along(5, &[0, 2]), [0, 1, 4, 5]);
        assert_eq!(mesh.ranks_along(5, &[2, 0]), [0, 4, 1, 5]);
        assert_eq!(mesh.rank_along(5, &[2, 0], 1), Some(4));
        assert!(mesh.ranks_along(8, &[0]).is_empty());
        assert!(mesh.ranks_along(5, &[3]).is_empty());
    }
}
