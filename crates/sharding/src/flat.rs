//! Flat ranges: runs of the row-major elements of a box.

use std::ops::Range;

use cairn_tensor::{element_count, row_major_strides};

use crate::Region;

/// Cuts a range of the row-major elements of a tensor into boxes, in order; at most `2 * ndim - 1`.
///
/// ```text
///   . . a b      a b          the rest of the first row
///   c d e f  →   c d e f …    whole rows
///   g . . .      g            the start of the last row
/// ```
pub(crate) fn boxes(shape: &[usize], range: Range<usize>) -> Vec<Region> {
    let strides = row_major_strides(shape);
    let mut boxes = Vec::new();
    let mut at = range.start;
    while at < range.end {
        // The outermost dim in which a whole step starts here and fits.
        let fits = |&stride: &usize| at.is_multiple_of(stride) && at + stride <= range.end;
        let Some(dim) = strides.iter().position(fits) else {
            boxes.push(Region::whole(shape)); // A scalar.
            break;
        };
        let stride = strides[dim];
        let index = at / stride % shape[dim];
        let steps = ((range.end - at) / stride).min(shape[dim] - index);
        let mut region = Region::whole(shape);
        for outer in 0..dim {
            region = region.with_dim(outer, at / strides[outer] % shape[outer], 1);
        }
        boxes.push(region.with_dim(dim, index, steps));
        at += steps * stride;
    }
    boxes
}

/// How many elements of `part`, a box in a tensor of this shape, lie before element `at` of the tensor.
pub(crate) fn count_before(shape: &[usize], part: &Region, at: usize) -> usize {
    let mut rest = part.element_count();
    if at >= count(shape) {
        return rest;
    }
    let mut before = 0;
    let strides = row_major_strides(shape);
    for (dim, stride) in strides.into_iter().enumerate() {
        // All elements counted so far share the outer indices of `at`; those smaller here come before.
        let index = at / stride % shape[dim];
        rest /= part.extent[dim];
        let smaller = index.clamp(part.offset[dim], part.end(dim)) - part.offset[dim];
        before += smaller * rest;
        if index < part.offset[dim] || index >= part.end(dim) {
            return before;
        }
    }
    before
}

/// The first element of `part`, a box in a tensor of this shape, at or after element `at`.
pub(crate) fn next_in(shape: &[usize], part: &Region, at: usize) -> Option<usize> {
    if at >= count(shape) {
        return None;
    }
    let strides = row_major_strides(shape);
    let mut next = 0;
    // The value with the last index so far that can grow raised by one, and the smallest after it.
    let mut raised = None;
    for (dim, &stride) in strides.iter().enumerate() {
        let index = at / stride % shape[dim];
        let smallest = |from: usize| -> usize {
            let tail = from..shape.len();
            tail.map(|dim| part.offset[dim] * strides[dim]).sum()
        };
        if index < part.offset[dim] {
            return Some(next + smallest(dim));
        }
        if index >= part.end(dim) {
            return raised;
        }
        if index + 1 < part.end(dim) {
            raised = Some(next + (index + 1) * stride + smallest(dim + 1));
        }
        next += index * stride;
    }
    Some(next)
}

fn count(shape: &[usize]) -> usize {
    element_count(shape).expect("no larger than the tensor")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prelude::*, sample::Index};

    fn shape_and_part() -> impl Strategy<Value = (Vec<usize>, Region)> {
        let dim = (1usize..5).prop_flat_map(|dim| (Just(dim), 0..dim));
        let dim = dim.prop_flat_map(|(dim, offset)| (Just(dim), Just(offset), 1..=dim - offset));
        prop::collection::vec(dim, 0..4).prop_map(|dims| {
            let shape = dims.iter().map(|dim| dim.0).collect();
            let offset = dims.iter().map(|dim| dim.1).collect();
            let extent = dims.iter().map(|dim| dim.2).collect();
            (shape, Region { offset, extent })
        })
    }

    /// The element numbers of a box, in order.
    fn elements(shape: &[usize], part: &Region) -> Vec<usize> {
        let strides = row_major_strides(shape);
        let count: usize = shape.iter().product();
        let inside = |element: &usize| {
            (0..shape.len()).all(|dim| {
                let index = element / strides[dim] % shape[dim];
                (part.offset[dim]..part.end(dim)).contains(&index)
            })
        };
        (0..count).filter(inside).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_flat_range_is_a_few_boxes_in_order((shape, _) in shape_and_part(), a in any::<Index>(), b in any::<Index>()) {
            let count: usize = shape.iter().product();
            let [a, b] = [a, b].map(|at| at.index(count + 1));
            let range = a.min(b)..a.max(b);
            let boxes = boxes(&shape, range.clone());
            prop_assert!(boxes.len() <= (2 * shape.len()).saturating_sub(1).max(1));
            let found: Vec<usize> = boxes.iter().flat_map(|part| elements(&shape, part)).collect();
            prop_assert_eq!(found, range.collect::<Vec<_>>());
        }

        #[test]
        fn searching_a_box_agrees_with_listing_it((shape, part) in shape_and_part()) {
            let elements = elements(&shape, &part);
            for at in 0..=shape.iter().product() {
                let before = elements.partition_point(|&element| element < at);
                prop_assert_eq!(next_in(&shape, &part, at), elements.get(before).copied());
                prop_assert_eq!(count_before(&shape, &part, at), before);
            }
        }
    }
}
