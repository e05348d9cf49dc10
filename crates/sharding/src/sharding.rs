//! Which mesh axes split, replicate, pin or leave unreduced a tensor.

mod text;

pub(crate) use text::{format_dim, parse_dim};

use cairn_tensor::ReduceOp;

use crate::{Error, Mesh, mesh::limit};

/// The most interleaved parts a rank may hold: the product of the groups of all dims.
pub const MAX_GROUPS: usize = 4096;

/// A mesh, and how each of its axes cuts a tensor.
///
/// In text it names for each dim of the tensor the axes that split it, outermost first:
///
/// | text | meaning |
/// |---|---|
/// | `tp, -` | dim 0 split along `tp`, dim 1 whole |
/// | `tp+dp` | dim 0 split along `tp`, every part split again along `dp` |
/// | `tp/3` | dim 0 cut in 3 groups, each split along `tp` (fused weights: q, k, v) |
/// | `tp, - \| flat(dp)` | the local tensor flattened and split along `dp` (ZeRO) |
/// | `- \| at(pp=1)` | only the ranks at coordinate 1 of `pp` hold the tensor |
/// | `- \| sum(dp)` | the value is the sum over `dp` of what the ranks hold |
///
/// Every cut is the same [`chunk`](crate::chunk) rule, so uneven sizes always work. An axis that does
/// nothing holds replicas. A sharding may name fewer dims than the tensor has; the others are whole.
///
/// ```
/// use cairn_sharding::{Mesh, Sharding};
/// let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
/// let sharding = Sharding::parse(&mesh, "tp, -")?;
/// assert_eq!(sharding.replica_ranks(5), [1, 5]);
/// assert_eq!(sharding.to_string(), "tp, -");
/// # Ok::<(), cairn_sharding::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sharding {
    mesh: Mesh,
    dims: Vec<DimSharding>,
    pins: Vec<(usize, usize)>,
    flat: Vec<usize>,
    partial: Vec<(usize, ReduceOp)>,
    free: Vec<usize>,
}

/// How one dim of a tensor is split.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DimSharding {
    /// The mesh axes that split it, by index, outermost first.
    pub axes: Vec<usize>,
    /// In how many groups it is cut before each group is split; 1 if it is not interleaved.
    pub groups: usize,
}

impl DimSharding {
    /// A dim that is not split.
    pub const WHOLE: DimSharding = DimSharding {
        axes: Vec::new(),
        groups: 1,
    };

    /// A dim split along the given axes, outermost first.
    pub fn split(axes: Vec<usize>) -> DimSharding {
        DimSharding { axes, groups: 1 }
    }
}

impl Sharding {
    /// A sharding that splits each dim as stated.
    ///
    /// # Errors
    /// If an axis is not in the mesh or used twice, or a number of groups is 0 or too large.
    pub fn new(mesh: &Mesh, dims: Vec<DimSharding>) -> Result<Sharding, Error> {
        let sharding = Sharding {
            dims,
            ..Sharding::replicated(mesh, 0)
        };
        sharding.checked()
    }

    /// The whole tensor on every rank.
    pub fn replicated(mesh: &Mesh, ndim: usize) -> Sharding {
        Sharding {
            mesh: mesh.clone(),
            dims: vec![DimSharding::WHOLE; ndim],
            pins: Vec::new(),
            flat: Vec::new(),
            partial: Vec::new(),
            free: (0..mesh.axes().len()).collect(),
        }
    }

    /// The same sharding with the local tensor flattened and split along `axes`, outermost first.
    ///
    /// # Errors
    /// If an axis is not in the mesh or used twice.
    pub fn with_flat(self, axes: Vec<usize>) -> Result<Sharding, Error> {
        Sharding { flat: axes, ..self }.checked()
    }

    /// The same sharding, held only by the ranks at the given (axis, coordinate) pairs.
    ///
    /// # Errors
    /// If an axis is not in the mesh or used twice, or a coordinate is outside its axis.
    pub fn with_pins(self, pins: Vec<(usize, usize)>) -> Result<Sharding, Error> {
        Sharding { pins, ..self }.checked()
    }

    /// The same sharding of values that are yet to be reduced along the given axes.
    ///
    /// # Errors
    /// If an axis is not in the mesh or used twice, or two operations do not commute: several axes must
    /// have the same operation, or `sum` and `avg`.
    pub fn with_partial(self, partial: Vec<(usize, ReduceOp)>) -> Result<Sharding, Error> {
        Sharding { partial, ..self }.checked()
    }

    /// The same sharding with other dims, which use some of its axes.
    pub(crate) fn with_fewer_axes(&self, dims: Vec<DimSharding>) -> Sharding {
        let sharding = Sharding {
            dims,
            ..self.clone()
        };
        sharding.checked().expect("fewer axes break no rule")
    }

    /// The same sharding with as many dims as the tensor has.
    pub(crate) fn with_ndim(mut self, ndim: usize) -> Result<Sharding, Error> {
        if let Some(dim) = ndim.checked_sub(self.dims.len()) {
            self.dims.extend(vec![DimSharding::WHOLE; dim]);
            return Ok(self);
        }
        let dim = self.dims.len() - 1;
        Err(Error::DimOutOfRange { dim, ndim })
    }

    fn checked(mut self) -> Result<Sharding, Error> {
        self.check_groups()?;
        self.check_reductions()?;
        self.pins.sort_unstable();
        self.partial.sort_unstable_by_key(|&(axis, _)| axis);
        let mut free = vec![true; self.mesh.axes().len()];
        for axis in self.used_axes() {
            let unused = free
                .get_mut(axis)
                .ok_or_else(|| self.mesh.unknown_axis(&axis.to_string()))?;
            if !std::mem::replace(unused, false) {
                let axis = self.mesh.axes()[axis].name.clone();
                return Err(Error::AxisUsedTwice { axis });
            }
        }
        for &(axis, index) in &self.pins {
            let size = self.mesh.axis_size(axis);
            if index >= size {
                let axis = self.mesh.axes()[axis].name.clone();
                return Err(Error::PinOutOfRange { axis, index, size });
            }
        }
        self.free = (0..free.len()).filter(|&axis| free[axis]).collect();
        Ok(self)
    }

    fn check_groups(&mut self) -> Result<(), Error> {
        let mut groups: usize = 1;
        for (dim, split) in self.dims.iter_mut().enumerate() {
            if split.groups == 0 {
                return Err(Error::ZeroGroups { dim });
            }
            if split.axes.is_empty() {
                split.groups = 1;
            }
            groups = limit(
                "interleaved groups",
                groups.saturating_mul(split.groups),
                MAX_GROUPS,
            )?;
        }
        Ok(())
    }

    fn check_reductions(&self) -> Result<(), Error> {
        let linear = |op| matches!(op, ReduceOp::Sum | ReduceOp::Avg);
        let Some(&(_, first)) = self.partial.first() else {
            return Ok(());
        };
        for &(_, second) in &self.partial {
            if first != second && !(linear(first) && linear(second)) {
                return Err(Error::MixedReductions { first, second });
            }
        }
        Ok(())
    }

    fn used_axes(&self) -> impl Iterator<Item = usize> + '_ {
        let split = self.dims.iter().flat_map(|dim| dim.axes.iter().copied());
        let pinned = self.pins.iter().map(|&(axis, _)| axis);
        let partial = self.partial.iter().map(|&(axis, _)| axis);
        split
            .chain(self.flat.iter().copied())
            .chain(pinned)
            .chain(partial)
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// How each named dim is split.
    pub fn dims(&self) -> &[DimSharding] {
        &self.dims
    }

    /// The axes that split the flattened local tensor, outermost first.
    pub fn flat(&self) -> &[usize] {
        &self.flat
    }

    /// The (axis, coordinate) pairs of the ranks that hold the tensor, by axis.
    pub fn pins(&self) -> &[(usize, usize)] {
        &self.pins
    }

    /// The axes along which values are yet to be reduced, by axis.
    pub fn partial(&self) -> &[(usize, ReduceOp)] {
        &self.partial
    }

    /// The axes along which the tensor is replicated, in mesh order.
    pub fn free_axes(&self) -> &[usize] {
        &self.free
    }

    /// Whether the rank has a local tensor, perhaps an empty one: it is in the mesh, where the pins say.
    pub fn holds(&self, rank: usize) -> bool {
        self.held_position(rank).is_some()
    }

    /// The position in the mesh of a rank that holds the tensor.
    pub(crate) fn held_position(&self, rank: usize) -> Option<usize> {
        let position = self.mesh.position(rank)?;
        let pinned = |&(axis, index): &(usize, usize)| self.mesh.coord(position, axis) == index;
        self.pins.iter().all(pinned).then_some(position)
    }
}

#[cfg(test)]
mod tests;
