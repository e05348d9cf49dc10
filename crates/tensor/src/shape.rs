//! Shapes: how many elements, and how far apart they lie.

/// The number of elements of a tensor, 1 for a scalar; `None` if it overflows.
///
/// A tensor with an empty dim has no elements, however large its other dims are.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1, |count: usize, &dim| count.checked_mul(dim))
}

/// The strides, in elements, of a tensor whose last dim varies fastest and which has no gaps.
///
/// Strides that overflow saturate: the tensor is empty then, or too large to exist.
pub fn row_major_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = shape[dim].saturating_mul(strides[dim]);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_has_one_element_and_no_strides() {
        assert_eq!(element_count(&[]), Some(1));
        assert_eq!(row_major_strides(&[]), Vec::<usize>::new());
    }

    #[test]
    fn an_empty_dim_wins_over_an_overflow() {
        assert_eq!(element_count(&[usize::MAX, usize::MAX]), None);
        assert_eq!(element_count(&[usize::MAX, usize::MAX, 0]), Some(0));
        assert_eq!(element_count(&[0, usize::MAX, usize::MAX]), Some(0));
    }

    #[test]
    fn the_last_dim_varies_fastest() {
        assert_eq!(row_major_strides(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(row_major_strides(&[2, 0, 4]), [0, 4, 1]);
        assert_eq!(
            row_major_strides(&[0, usize::MAX, usize::MAX]),
            [usize::MAX, usize::MAX, 1]
        );
    }
}
