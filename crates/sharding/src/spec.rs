//! A tensor's element type, shape, and where its elements are.

mod text;

use cairn_tensor::DType;

use crate::{Cell, Error, Listed, LocalBox, Piece, Region, Replica, Sharding, local::Local};

/// The most dims a tensor may have.
pub const MAX_DIMS: usize = 32;

/// A tensor's element type, shape, and which rank holds what: `bf16[4096@tp, 1024]`.
///
/// ```
/// use cairn_sharding::{Mesh, TensorSpec};
/// let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
/// let spec = TensorSpec::parse(&mesh, "bf16[7@tp, 1024]")?;
/// assert_eq!(spec.local_shape(3), Some(vec![1, 1024]));
/// assert_eq!(spec.pieces(3)[0].to_string(), "6:1,0:1024");
/// assert_eq!(spec.replica_ranks(3), [3, 7]);
/// # Ok::<(), cairn_sharding::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    dtype: DType,
    shape: Vec<usize>,
    distribution: Distribution,
}

/// Which rank holds what of a tensor: a formula, or a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Distribution {
    /// Cut along the axes of a mesh.
    Mesh(Sharding),
    /// Listed rank by rank.
    Listed(Listed),
}

impl From<Sharding> for Distribution {
    fn from(sharding: Sharding) -> Distribution {
        Distribution::Mesh(sharding)
    }
}

impl From<Listed> for Distribution {
    fn from(listed: Listed) -> Distribution {
        Distribution::Listed(listed)
    }
}

impl TensorSpec {
    /// A tensor of this type and shape, held as stated.
    ///
    /// # Errors
    /// If the tensor is too large, has too many dims, or the distribution does not fit its shape or its
    /// element type.
    pub fn new(
        dtype: DType,
        shape: Vec<usize>,
        distribution: impl Into<Distribution>,
    ) -> Result<TensorSpec, Error> {
        crate::mesh::limit("dims", shape.len(), MAX_DIMS)?;
        let count = cairn_tensor::element_count(&shape);
        if count.and_then(|count| dtype.len_bytes(count)).is_none() {
            return Err(Error::Unaddressable { dtype, shape });
        }
        let distribution = match distribution.into() {
            Distribution::Mesh(sharding) => {
                check_reductions(dtype, &sharding)?;
                Distribution::Mesh(sharding.with_ndim(shape.len())?)
            }
            Distribution::Listed(listed) => {
                listed.check(&shape)?;
                Distribution::Listed(listed)
            }
        };
        Ok(TensorSpec {
            dtype,
            shape,
            distribution,
        })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of the whole tensor.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Which rank holds what.
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// The sharding, if the tensor is cut along a mesh.
    pub fn sharding(&self) -> Option<&Sharding> {
        match &self.distribution {
            Distribution::Mesh(sharding) => Some(sharding),
            Distribution::Listed(_) => None,
        }
    }

    /// Whether the rank has a local tensor; on a mesh it may be an empty one.
    pub fn holds(&self, rank: usize) -> bool {
        match &self.distribution {
            Distribution::Mesh(sharding) => sharding.holds(rank),
            Distribution::Listed(listed) => !listed.pieces(rank).is_empty(),
        }
    }

    /// The largest rank that may hold something; 0 if none does.
    pub fn max_rank(&self) -> usize {
        match &self.distribution {
            Distribution::Mesh(sharding) => sharding.mesh().max_rank(),
            Distribution::Listed(listed) => {
                listed.by_rank().keys().next_back().map_or(0, |&rank| rank)
            }
        }
    }

    /// The ranks that have a local tensor.
    pub fn ranks(&self) -> Vec<usize> {
        match &self.distribution {
            Distribution::Mesh(sharding) => {
                let ranks = sharding.mesh().ranks();
                ranks.filter(|&rank| sharding.holds(rank)).collect()
            }
            Distribution::Listed(listed) => listed.by_rank().keys().copied().collect(),
        }
    }

    /// The shape of the rank's buffer, or `None` if it has none.
    ///
    /// A box keeps its dims; flat ranges have one dim; several listed pieces stand one after another in
    /// one dim.
    pub fn local_shape(&self, rank: usize) -> Option<Vec<usize>> {
        match &self.distribution {
            Distribution::Mesh(_) => Some(self.local(rank)?.buffer_shape()),
            Distribution::Listed(listed) => listed.local_shape(rank),
        }
    }

    /// The number of elements in the rank's buffer.
    pub fn local_element_count(&self, rank: usize) -> usize {
        let shape = self.local_shape(rank);
        shape.map_or(0, |shape| {
            cairn_tensor::element_count(&shape).expect("no larger than the tensor")
        })
    }

    /// What the rank holds, without empty pieces: several if dims are interleaved or pieces listed.
    pub fn pieces(&self, rank: usize) -> Vec<Piece> {
        match &self.distribution {
            Distribution::Mesh(_) => self.local(rank).map_or(Vec::new(), |local| local.pieces()),
            Distribution::Listed(listed) => listed.pieces(rank).to_vec(),
        }
    }

    /// What the rank holds, as disjoint boxes of the tensor with their places in the rank's buffer.
    pub fn local_boxes(&self, rank: usize) -> Vec<LocalBox> {
        match &self.distribution {
            Distribution::Mesh(_) => self.local(rank).map_or(Vec::new(), |local| local.boxes()),
            Distribution::Listed(listed) => listed.boxes(rank),
        }
    }

    /// Which of the holders of the same pieces the rank is, or `None` if it holds nothing.
    pub fn replica(&self, rank: usize) -> Option<Replica> {
        match &self.distribution {
            Distribution::Mesh(sharding) => sharding.replica(rank),
            Distribution::Listed(listed) => listed.replica(rank),
        }
    }

    /// The ranks that hold exactly what `rank` holds, itself included; none if it holds nothing.
    pub fn replica_ranks(&self, rank: usize) -> Vec<usize> {
        match &self.distribution {
            Distribution::Mesh(sharding) => sharding.replica_ranks(rank),
            Distribution::Listed(listed) => listed.replica_ranks(rank).to_vec(),
        }
    }

    /// The distinct shards that meet a region, each once, with what they have of it.
    ///
    /// On a mesh the time depends on the number of answers, not of ranks.
    pub fn cells_overlapping(&self, region: &Region) -> Vec<Cell> {
        let cell = |rank| {
            let boxes = self.local_boxes(rank);
            let boxes = boxes.iter().filter_map(|part| part.clip(region)).collect();
            Cell { rank, boxes }
        };
        let cells = self.ranks_overlapping(region).into_iter().map(cell);
        cells.filter(|cell| !cell.boxes.is_empty()).collect()
    }

    /// The ranks that stand for the distinct shards that meet a region, and with listed pieces for others too: the
    /// ranks of [`TensorSpec::cells_overlapping`] are among them.
    pub fn ranks_overlapping(&self, region: &Region) -> Vec<usize> {
        match &self.distribution {
            Distribution::Mesh(sharding) => sharding
                .cell_positions(&self.shape, region)
                .into_iter()
                .map(|position| sharding.mesh().rank(position))
                .collect(),
            Distribution::Listed(listed) => listed.leaders().collect(),
        }
    }

    fn local(&self, rank: usize) -> Option<Local> {
        let sharding = self.sharding()?;
        let position = sharding.held_position(rank)?;
        Some(Local::at(sharding, &self.shape, position))
    }
}

fn check_reductions(dtype: DType, sharding: &Sharding) -> Result<(), Error> {
    for &(_, op) in sharding.partial() {
        if !op.applies_to(dtype) {
            return Err(cairn_tensor::Error::UnsupportedReduce { op, dtype }.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
