//! Boxes of elements inside a buffer.

use crate::{element_count, row_major_strides};

/// A box of elements inside a buffer: where its first element lies and how far apart neighbours
/// are, all in elements.
///
/// ```
/// use cairn_tensor::Strided;
///
/// let matrix = Strided::contiguous(&[4, 6]);
/// let middle = matrix.region(&[1, 2], &[2, 3]).unwrap();
/// assert_eq!((middle.offset, &middle.strides[..], middle.end()), (8, &[6, 1][..], Some(17)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Strided {
    /// Where the first element lies.
    pub offset: usize,
    /// How many elements along each dim.
    pub shape: Vec<usize>,
    /// How far apart neighbours along each dim are.
    pub strides: Vec<usize>,
}

impl Strided {
    /// A whole row-major tensor at the start of a buffer.
    pub fn contiguous(shape: &[usize]) -> Strided {
        Strided {
            offset: 0,
            shape: shape.to_vec(),
            strides: row_major_strides(shape),
        }
    }

    /// The box of `extent` elements at `offset` inside this one; `None` if it is out of bounds.
    pub fn region(&self, offset: &[usize], extent: &[usize]) -> Option<Strided> {
        if offset.len() != self.shape.len() || extent.len() != self.shape.len() {
            return None;
        }
        for ((&start, &len), &dim) in offset.iter().zip(extent).zip(&self.shape) {
            if start.checked_add(len)? > dim {
                return None;
            }
        }
        let region = Strided {
            offset: self.offset,
            shape: extent.to_vec(),
            strides: self.strides.clone(),
        };
        if region.is_empty() {
            return Some(region); // An empty box lies nowhere, and its strides may have saturated.
        }
        Some(Strided {
            offset: advance(self.offset, offset.iter().copied(), &self.strides)?,
            ..region
        })
    }

    /// Whether the elements lie side by side in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&dim, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if dim != 1 && stride != expected {
                return self.is_empty();
            }
            expected = expected.saturating_mul(dim);
        }
        true
    }

    /// One past the last element touched, 0 for an empty box; `None` if it overflows. A buffer must
    /// have at least so many elements.
    pub fn end(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        let last = self.shape.iter().map(|dim| dim - 1);
        advance(self.offset, last, &self.strides)?.checked_add(1)
    }

    fn is_empty(&self) -> bool {
        element_count(&self.shape) == Some(0)
    }
}

/// The element `index` away from `offset`; `None` if it overflows.
fn advance(offset: usize, index: impl Iterator<Item = usize>, strides: &[usize]) -> Option<usize> {
    index.zip(strides).try_fold(offset, |at, (index, stride)| {
        at.checked_add(index.checked_mul(*stride)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_out_of_bounds_is_none() {
        let matrix = Strided::contiguous(&[4, 6]);
        assert!(matrix.region(&[0, 0], &[4, 6]).is_some());
        assert!(matrix.region(&[4, 6], &[0, 0]).is_some());
        assert_eq!(matrix.region(&[1, 0], &[4, 6]), None);
        assert_eq!(matrix.region(&[0, 7], &[1, 0]), None);
        assert_eq!(matrix.region(&[0], &[1]), None);
        assert_eq!(matrix.region(&[1, 1], &[usize::MAX, 1]), None);
    }

    #[test]
    fn a_region_of_a_region_is_a_region_of_the_whole() {
        let whole = Strided::contiguous(&[5, 7, 9]);
        let inner = whole
            .region(&[1, 2, 3], &[4, 5, 6])
            .unwrap()
            .region(&[2, 0, 1], &[1, 3, 4])
            .unwrap();
        assert_eq!(inner, whole.region(&[3, 2, 4], &[1, 3, 4]).unwrap());
    }

    #[test]
    fn contiguity_ignores_dims_of_size_one() {
        let matrix = Strided::contiguous(&[4, 6]);
        assert!(matrix.is_contiguous());
        assert!(matrix.region(&[1, 0], &[3, 6]).unwrap().is_contiguous());
        assert!(matrix.region(&[2, 2], &[1, 3]).unwrap().is_contiguous());
        assert!(!matrix.region(&[0, 0], &[2, 5]).unwrap().is_contiguous());
        assert!(
            !Strided {
                offset: 0,
                shape: vec![4, 6],
                strides: vec![1, 4]
            }
            .is_contiguous()
        );
        assert!(
            Strided {
                offset: 9,
                shape: vec![0, 6],
                strides: vec![1, 4]
            }
            .is_contiguous()
        );
        assert!(Strided::contiguous(&[]).is_contiguous());
    }

    #[test]
    fn the_end_of_an_empty_box_is_zero_and_of_a_scalar_one() {
        assert_eq!(Strided::contiguous(&[]).end(), Some(1));
        assert_eq!(
            Strided::contiguous(&[0, usize::MAX, usize::MAX]).end(),
            Some(0)
        );
        assert_eq!(Strided::contiguous(&[usize::MAX, 2]).end(), None);
        assert_eq!(
            Strided {
                offset: usize::MAX,
                shape: vec![],
                strides: vec![]
            }
            .end(),
            None
        );
    }

    #[test]
    fn an_empty_region_of_a_huge_empty_box_exists() {
        let huge = Strided::contiguous(&[0, usize::MAX, usize::MAX]);
        assert!(huge.region(&[0, 5, 7], &[0, 1, 1]).is_some());
    }
}
