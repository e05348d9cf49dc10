//! Named axes over ranks.

mod text;

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use crate::Error;

/// The most axes a mesh may have.
pub const MAX_AXES: usize = 16;
/// The most ranks a mesh may have; ranks are below it, too.
pub const MAX_RANKS: usize = 1 << 24;
/// The longest name of an axis, in bytes.
pub const MAX_AXIS_NAME_BYTES: usize = 64;

/// Named axes over ranks: `dp=2,tp=4` arranges eight ranks as two rows of four.
///
/// Ranks are laid out in row-major order, the first axis outermost. They are `0..size` unless stated: a
/// pipeline stage prints as `dp=2,tp=2 on 4..8`, an irregular choice as `tp=3 on [0,2,5]`. The mesh of
/// one rank and no axes prints as `single`. Clones are cheap.
///
/// ```
/// use cairn_sharding::Mesh;
/// let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
/// assert_eq!(mesh.coords_of(6), Some(vec![1, 2]));
/// assert_eq!(mesh, "dp=2,tp=4".parse()?);
/// # Ok::<(), cairn_sharding::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mesh(Arc<Grid>);

/// One axis of a mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Axis {
    /// Its name, unique in the mesh.
    pub name: String,
    /// The number of coordinates along it, at least 1.
    pub size: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Grid {
    axes: Vec<Axis>,
    /// How far apart, in positions, neighbours along each axis are.
    strides: Vec<usize>,
    ranks: Ranks,
}

/// Which rank stands at each position of the row-major order.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Ranks {
    Consecutive(Range<usize>),
    Listed {
        ranks: Vec<usize>,
        /// (rank, position), sorted.
        positions: Vec<(usize, usize)>,
    },
}

impl Mesh {
    /// A mesh over the ranks from 0.
    ///
    /// # Errors
    /// If a name or a size is not valid, a name stands twice, or a limit is passed.
    pub fn new<N: Into<String>>(axes: impl IntoIterator<Item = (N, usize)>) -> Result<Mesh, Error> {
        let (axes, size) = check_axes(axes)?;
        Ok(Mesh::build(axes, Ranks::Consecutive(0..size)))
    }

    /// A mesh over the given ranks, in row-major order: permuted ranks, or some of a larger job.
    ///
    /// # Errors
    /// As [`Mesh::new`], or if the ranks are not as many as the axes span, or one stands twice.
    pub fn with_ranks<N: Into<String>>(
        axes: impl IntoIterator<Item = (N, usize)>,
        ranks: Vec<usize>,
    ) -> Result<Mesh, Error> {
        let (axes, size) = check_axes(axes)?;
        if ranks.len() != size {
            return Err(Error::RankCount {
                expected: size,
                actual: ranks.len(),
            });
        }
        Ok(Mesh::build(axes, check_ranks(ranks)?))
    }

    /// The mesh of rank 0 alone, without axes.
    pub fn single() -> Mesh {
        Mesh::build(Vec::new(), Ranks::Consecutive(0..1))
    }

    fn build(axes: Vec<Axis>, ranks: Ranks) -> Mesh {
        let sizes: Vec<usize> = axes.iter().map(|axis| axis.size).collect();
        let strides = cairn_tensor::row_major_strides(&sizes);
        Mesh(Arc::new(Grid {
            axes,
            strides,
            ranks,
        }))
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        match &self.0.ranks {
            Ranks::Consecutive(ranks) => ranks.len(),
            Ranks::Listed { ranks, .. } => ranks.len(),
        }
    }

    /// The axes, outermost first.
    pub fn axes(&self) -> &[Axis] {
        &self.0.axes
    }

    /// The index of an axis.
    ///
    /// # Errors
    /// If there is no such axis; the hint lists the axes.
    pub fn axis(&self, name: &str) -> Result<usize, Error> {
        let found = self.axes().iter().position(|axis| axis.name == name);
        found.ok_or_else(|| self.unknown_axis(name))
    }

    pub(crate) fn unknown_axis(&self, name: &str) -> Error {
        Error::UnknownAxis {
            axis: name.to_owned(),
            valid: self.axes().iter().map(|axis| axis.name.clone()).collect(),
        }
    }

    /// The rank at the given coordinates, or `None` if they are outside the mesh.
    pub fn rank_at(&self, coords: &[usize]) -> Option<usize> {
        let axes = self.axes();
        let inside =
            coords.len() == axes.len() && coords.iter().zip(axes).all(|(&at, axis)| at < axis.size);
        let position = coords.iter().zip(&self.0.strides).map(|(at, by)| at * by);
        inside.then(|| self.rank(position.sum()))
    }

    /// The coordinates of a rank, or `None` if it is not in the mesh.
    pub fn coords_of(&self, rank: usize) -> Option<Vec<usize>> {
        let position = self.position(rank)?;
        Some(
            (0..self.axes().len())
                .map(|axis| self.coord(position, axis))
                .collect(),
        )
    }

    /// Whether the rank is in the mesh.
    pub fn contains(&self, rank: usize) -> bool {
        self.position(rank).is_some()
    }

    /// The largest rank.
    pub fn max_rank(&self) -> usize {
        match &self.0.ranks {
            Ranks::Consecutive(ranks) => ranks.end - 1,
            Ranks::Listed { positions, .. } => positions.last().expect("a mesh has a rank").0,
        }
    }

    /// The ranks, in row-major order of their coordinates.
    pub fn ranks(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.size()).map(|position| self.rank(position))
    }

    /// The rank at a position of the row-major order.
    pub(crate) fn rank(&self, position: usize) -> usize {
        match &self.0.ranks {
            Ranks::Consecutive(ranks) => ranks.start + position,
            Ranks::Listed { ranks, .. } => ranks[position],
        }
    }

    /// The position of a rank in the row-major order.
    pub(crate) fn position(&self, rank: usize) -> Option<usize> {
        match &self.0.ranks {
            Ranks::Consecutive(ranks) => ranks.contains(&rank).then(|| rank - ranks.start),
            Ranks::Listed { positions, .. } => {
                let found = positions.binary_search_by_key(&rank, |&(rank, _)| rank);
                found.ok().map(|index| positions[index].1)
            }
        }
    }

    /// The coordinate along `axis` of a position.
    pub(crate) fn coord(&self, position: usize, axis: usize) -> usize {
        position / self.0.strides[axis] % self.0.axes[axis].size
    }

    /// How far apart, in positions, neighbours along `axis` are.
    pub(crate) fn stride(&self, axis: usize) -> usize {
        self.0.strides[axis]
    }

    /// The size of `axis`.
    pub(crate) fn axis_size(&self, axis: usize) -> usize {
        self.0.axes[axis].size
    }
}

fn check_axes<N: Into<String>>(
    axes: impl IntoIterator<Item = (N, usize)>,
) -> Result<(Vec<Axis>, usize), Error> {
    let mut checked: Vec<Axis> = Vec::new();
    let mut ranks: usize = 1;
    for (name, size) in axes {
        let name = name.into();
        if !is_axis_name(&name) {
            return Err(Error::AxisName { name });
        }
        if checked.iter().any(|axis| axis.name == name) {
            return Err(Error::DuplicateAxis { axis: name });
        }
        if size == 0 {
            return Err(Error::EmptyAxis { axis: name });
        }
        ranks = limit("ranks", ranks.saturating_mul(size), MAX_RANKS)?;
        checked.push(Axis { name, size });
        limit("mesh axes", checked.len(), MAX_AXES)?;
    }
    Ok((checked, ranks))
}

fn check_ranks(ranks: Vec<usize>) -> Result<Ranks, Error> {
    let mut seen = BTreeSet::new();
    for &rank in &ranks {
        limit("ranks", rank.saturating_add(1), MAX_RANKS)?;
        if !seen.insert(rank) {
            return Err(Error::DuplicateRank { rank });
        }
    }
    let first = ranks[0];
    if ranks
        .iter()
        .enumerate()
        .all(|(at, &rank)| rank == first + at)
    {
        return Ok(Ranks::Consecutive(first..first + ranks.len()));
    }
    let mut positions: Vec<(usize, usize)> = ranks.iter().copied().zip(0..).collect();
    positions.sort_unstable();
    Ok(Ranks::Listed { ranks, positions })
}

fn is_axis_name(name: &str) -> bool {
    let tail = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    name.len() <= MAX_AXIS_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(tail)
}

/// Gives `actual` back if it is within its limit.
pub(crate) fn limit(what: &'static str, actual: usize, limit: usize) -> Result<usize, Error> {
    if actual > limit {
        return Err(Error::Limit {
            what,
            actual,
            limit,
        });
    }
    Ok(actual)
}

#[cfg(test)]
mod tests;
