//! Boxes in a tensor.

use std::{fmt, str::FromStr};

use crate::Error;

/// A box in a tensor: where it starts and how far it reaches in each dim.
///
/// It prints as `offset:extent` for each dim; the region of a scalar prints as nothing. Both lists have
/// an entry for each dim; methods may panic where they do not.
///
/// ```
/// use cairn_sharding::Region;
/// let region: Region = "512:256,0:1024".parse()?;
/// assert_eq!(region.extent, [256, 1024]);
/// assert_eq!(region.to_string(), "512:256,0:1024");
/// # Ok::<(), cairn_sharding::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Region {
    /// The first index in each dim.
    pub offset: Vec<usize>,
    /// The number of indices in each dim.
    pub extent: Vec<usize>,
}

impl Region {
    /// All of a tensor.
    pub fn whole(shape: &[usize]) -> Region {
        Region {
            offset: vec![0; shape.len()],
            extent: shape.to_vec(),
        }
    }

    /// The number of dims.
    pub fn ndim(&self) -> usize {
        self.extent.len()
    }

    /// One past the last index in `dim`.
    ///
    /// # Panics
    /// If `dim` is not below [`ndim`](Self::ndim).
    pub fn end(&self, dim: usize) -> usize {
        self.offset[dim].saturating_add(self.extent[dim])
    }

    /// Whether it has no elements. The region of a scalar has one.
    pub fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    /// The number of elements; `usize::MAX` if there are more.
    pub fn element_count(&self) -> usize {
        cairn_tensor::element_count(&self.extent).unwrap_or(usize::MAX)
    }

    /// Whether every element of `other` lies in this region.
    pub fn contains(&self, other: &Region) -> bool {
        self.ndim() == other.ndim()
            && (other.is_empty()
                || (0..self.ndim()).all(|dim| {
                    self.offset[dim] <= other.offset[dim] && other.end(dim) <= self.end(dim)
                }))
    }

    /// Whether the two regions share an element.
    pub fn meets(&self, other: &Region) -> bool {
        self.ndim() == other.ndim()
            && (0..self.ndim()).all(|dim| {
                self.offset[dim].max(other.offset[dim]) < self.end(dim).min(other.end(dim))
            })
    }

    /// The elements both regions have, or `None` if there are none.
    pub fn intersect(&self, other: &Region) -> Option<Region> {
        if !self.meets(other) {
            return None;
        }
        let offset = self.offset.iter().zip(&other.offset);
        let offset: Vec<usize> = offset.map(|(&a, &b)| a.max(b)).collect();
        let extent = (0..self.ndim())
            .map(|dim| self.end(dim).min(other.end(dim)) - offset[dim])
            .collect();
        Some(Region { offset, extent })
    }

    /// What is left of this region without `other`, as disjoint boxes (at most two for each dim).
    pub fn subtract(&self, other: &Region) -> Vec<Region> {
        if self.is_empty() || other.contains(self) {
            return Vec::new();
        }
        if !self.meets(other) {
            return vec![self.clone()];
        }
        let mut rest = self.clone();
        let mut left = Vec::new();
        for dim in 0..self.ndim() {
            // The slabs before and after the shared part; what remains has its extent in this dim.
            let shared_start = self.offset[dim].max(other.offset[dim]);
            let shared_end = self.end(dim).min(other.end(dim));
            for (start, end) in [
                (rest.offset[dim], shared_start),
                (shared_end, rest.end(dim)),
            ] {
                if start < end {
                    left.push(rest.with_dim(dim, start, end - start));
                }
            }
            (rest.offset[dim], rest.extent[dim]) = (shared_start, shared_end - shared_start);
        }
        left
    }

    /// The same region with another range in one dim.
    ///
    /// # Panics
    /// If `dim` is not below [`ndim`](Self::ndim).
    #[must_use]
    pub fn with_dim(&self, dim: usize, offset: usize, extent: usize) -> Region {
        let mut region = self.clone();
        region.offset[dim] = offset;
        region.extent[dim] = extent;
        region
    }

    /// The same box after a move of its surroundings from one place to another.
    pub(crate) fn translated(mut self, from: &[usize], to: &[usize]) -> Region {
        for (offset, (from, to)) in self.offset.iter_mut().zip(from.iter().zip(to)) {
            *offset = (*offset - from).saturating_add(*to);
        }
        self
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (dim, (offset, extent)) in self.offset.iter().zip(&self.extent).enumerate() {
            let comma = if dim == 0 { "" } else { "," };
            write!(f, "{comma}{offset}:{extent}")?;
        }
        Ok(())
    }
}

impl FromStr for Region {
    type Err = Error;

    fn from_str(text: &str) -> Result<Region, Error> {
        let mut region = Region::whole(&[]);
        if text.trim().is_empty() {
            return Ok(region);
        }
        for dim in text.split(',') {
            let range = dim.split_once(':').and_then(|(offset, extent)| {
                let (offset, extent): (usize, usize) =
                    (offset.trim().parse().ok()?, extent.trim().parse().ok()?);
                offset.checked_add(extent)?;
                Some((offset, extent))
            });
            let (offset, extent) = range.ok_or_else(|| Error::Syntax {
                what: "region",
                text: text.to_owned(),
                expected: "`offset:extent` for each dim, separated by commas",
            })?;
            region.offset.push(offset);
            region.extent.push(extent);
        }
        Ok(region)
    }
}

#[cfg(test)]
mod tests;
