//! The first values of parameters.
//!
//! A value is a function of the seed, the name of the parameter and the place of the element in the whole of it, so that every layout begins with the same model.

use crate::{Init, Slot};
use cairn_kernels::elementwise::scale;
use cairn_kernels::random::Stream;
use cairn_kernels::{Pool, Real};
use cairn_sharding::Region;
use std::ops::Range;

/// Tells the numbers of first values from those that are drawn for other purposes.
const PURPOSE: &str = "first values";

/// Writes the first values of some `elements` of what this rank holds of a parameter, counted row by row.
///
/// # Panics
/// If `target` has another length.
pub(crate) fn fill(
    pool: &Pool,
    seed: u64,
    slot: &Slot,
    elements: Range<usize>,
    target: &mut [f32],
) {
    assert_eq!(elements.len(), target.len(), "there is a place for each");
    let parameter = &slot.parameter;
    match parameter.init {
        Init::Zeros => target.fill(0.0),
        Init::Ones => target.fill(1.0),
        Init::Normal { deviation } => {
            let stream = named(named(Stream::new(seed), PURPOSE), &parameter.name);
            let mut rest = target;
            for run in runs(&parameter.shape, &slot.region(), elements) {
                let (part, tail) = rest.split_at_mut(run.len());
                stream.fill_normal(pool, run.start as u64, part);
                scale(pool, f32::from_f64(deviation), part);
                rest = tail;
            }
        }
    }
}

/// A stream of its own for each name.
fn named(stream: Stream, name: &str) -> Stream {
    let words = name.as_bytes().chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    });
    words.fold(stream.with(name.len() as u64), Stream::with)
}

/// The elements of a region, counted in the region, as runs of elements counted in the whole.
fn runs(shape: &[usize], region: &Region, elements: Range<usize>) -> Vec<Range<usize>> {
    // Only one dim is cut, so that whatever lies behind it is one run.
    let cut = (0..shape.len()).find(|dim| region.extent[*dim] != shape[*dim]);
    let Some(dim) = cut else {
        return vec![elements];
    };
    let inner: usize = shape[dim + 1..].iter().product();
    let (run, stride) = (region.extent[dim] * inner, shape[dim] * inner);
    let mut runs = Vec::new();
    let mut next = elements.start;
    while next < elements.end {
        let (row, inside) = (next / run, next % run);
        let len = (run - inside).min(elements.end - next);
        let start = row * stride + region.offset[dim] * inner + inside;
        runs.push(start..start + len);
        next += len;
    }
    runs
}

#[cfg(test)]
mod tests {
    //! Whatever part of a parameter a rank holds, it is a slice of the whole.

    use super::*;
    use crate::Bucket;
    use crate::testing::parameter;
    use proptest::prelude::*;

    fn values(slot: &Slot, elements: Range<usize>) -> Vec<f32> {
        let mut values = vec![f32::NAN; elements.len()];
        fill(&Pool::new(1), 7, slot, elements, &mut values);
        values
    }

    proptest! {
        #[test]
        fn every_part_is_a_slice_of_the_whole(
            shape in prop::collection::vec(0usize..6, 0..4),
            dim in 0usize..4,
            size in 1usize..5,
            index in 0usize..5,
            from in 0usize..60,
            len in 0usize..60,
        ) {
            let index = index % size;
            let described = parameter("model.embed_tokens.weight", &shape, (dim < shape.len()).then_some(dim));
            let part = Bucket::new(vec![described.clone()], index, size).slots()[0].clone();
            let whole = Bucket::new(vec![described], 0, 1).slots()[0].clone();
            let all = values(&whole, 0..whole.range.len());
            let strides = cairn_tensor::row_major_strides(&shape);
            let region = part.region();
            let inside = |element: &usize| (0..shape.len()).all(|dim| {
                let at = element / strides[dim] % shape[dim];
                (region.offset[dim]..region.end(dim)).contains(&at)
            });
            let expected: Vec<f32> = (0..all.len()).filter(inside).map(|element| all[element]).collect();
            let start = from.min(expected.len());
            let range = start..(start + len).min(expected.len());
            prop_assert_eq!(values(&part, range.clone()), &expected[range]);
        }
    }

    #[test]
    fn names_and_seeds_tell_values_apart_and_deviations_are_what_they_say() {
        let slot =
            |name| Bucket::new(vec![parameter(name, &[100, 100], None)], 0, 1).slots()[0].clone();
        let [one, other] = ["a.weight", "b.weight"].map(|name| values(&slot(name), 0..10_000));
        assert_ne!(one[..8], other[..8]);
        let mut reseeded = vec![0.0; 8];
        fill(&Pool::new(1), 8, &slot("a.weight"), 0..8, &mut reseeded);
        assert_ne!(one[..8], reseeded);
        let sum: f64 = one.iter().map(|value| f64::from(value.powi(2))).sum();
        assert!(((sum / 1e4).sqrt() - 0.02).abs() < 5e-4);
    }
}
