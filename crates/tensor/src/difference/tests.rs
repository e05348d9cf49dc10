//! Every number is compared with its definition, written down element by element.

use super::*;
use crate::{Overflow, cast};
use proptest::prelude::*;

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn between(left: &[f32], right: &[f32], tolerance: Tolerance) -> Difference {
    let (left, right) = (bytes(left), bytes(right));
    Difference::between((DType::F32, &left), (DType::F32, &right), tolerance).unwrap()
}

const NONE: Tolerance = Tolerance {
    absolute: 0.0,
    relative: 0.0,
};

fn element() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -2.0f32..2.0,
        1 => Just(0.0),
        1 => Just(f32::NAN),
        1 => Just(f32::INFINITY),
        1 => Just(f32::NEG_INFINITY),
    ]
}

proptest! {
    #[test]
    fn counts_and_maxima_are_those_of_the_definition(
        pairs in proptest::collection::vec((element(), element(), any::<bool>()), 0..1500),
        absolute in prop_oneof![Just(0.0), Just(0.1)],
        relative in prop_oneof![Just(0.0), Just(0.5)],
    ) {
        let left: Vec<f32> = pairs.iter().map(|pair| pair.0).collect();
        let right: Vec<f32> = pairs.iter().map(|pair| if pair.2 { pair.0 } else { pair.1 }).collect();
        let (mut differing, mut nan, mut most, mut worst) = (0, 0, 0.0, None);
        for (index, (&l, &r)) in left.iter().zip(&right).enumerate() {
            let (l, r) = (f64::from(l), f64::from(r));
            if l.is_nan() != r.is_nan() {
                nan += 1;
                differing += 1;
            } else if l != r && !l.is_nan() {
                let distance = (l - r).abs();
                let finite = l.is_finite() && r.is_finite();
                differing += u64::from(!finite || distance > absolute + relative * r.abs());
                if distance > most {
                    (most, worst) = (distance, Some(index as u64));
                }
            }
        }
        let found = between(&left, &right, Tolerance { absolute, relative });
        prop_assert_eq!((found.differing, found.nan_mismatches), (differing, nan));
        prop_assert_eq!((found.max_absolute, found.worst), (most, worst));
        prop_assert_eq!(found.elements, left.len() as u64);
    }

    #[test]
    fn parts_appended_find_the_same_worst_element(
        left in proptest::collection::vec(-2.0f32..2.0, 600), cut in 0usize..600,
    ) {
        let right = vec![0.5; left.len()];
        let mut parts = between(&left[..cut], &right[..cut], NONE);
        parts.append(&between(&left[cut..], &right[cut..], NONE));
        let whole = between(&left, &right, NONE);
        prop_assert_eq!((parts.worst, parts.max_absolute), (whole.worst, whole.max_absolute));
    }
}

#[test]
fn wide_integers_are_compared_exactly() {
    let (left, right) = (
        (1_i64 << 60).to_le_bytes(),
        ((1_i64 << 60) + 1).to_le_bytes(),
    );
    let found = Difference::between((DType::I64, &left), (DType::I64, &right), NONE).unwrap();
    assert_eq!((found.differing, found.max_absolute), (1, 1.0));
    let most = u64::MAX.to_le_bytes();
    let found = Difference::between((DType::I64, &left), (DType::U64, &most), NONE).unwrap();
    assert_eq!(found.differing, 1);
}

#[test]
fn types_may_differ_and_values_be_the_same() {
    let source = [0, 1, 2, 4];
    for from in DType::ALL {
        for to in DType::ALL {
            let skip = |dtype| matches!(dtype, DType::C64 | DType::Bool | DType::F8E8M0);
            if skip(from) || skip(to) {
                continue;
            }
            let as_type = |dtype: DType| {
                let mut target = vec![0; dtype.len_bytes(4).unwrap()];
                cast(DType::U8, dtype, &source, &mut target, Overflow::Native).unwrap();
                target
            };
            let (left, right) = (as_type(from), as_type(to));
            let found = Difference::between((from, &left), (to, &right), NONE).unwrap();
            assert_eq!((found.differing, found.elements), (0, 4), "{from} {to}");
            assert_eq!(found.cosine(), Some(1.0));
        }
    }
}

#[test]
fn directions_are_told_and_zero_has_none() {
    let cosine = |left: &[f32], right: &[f32]| between(left, right, NONE).cosine();
    assert_eq!(cosine(&[1.0, 0.0], &[0.0, 1.0]), Some(0.0));
    assert_eq!(cosine(&[1.0, 2.0], &[-1.0, -2.0]), Some(-1.0));
    assert_eq!(cosine(&[0.0], &[1.0]), None);
    assert_eq!(cosine(&[], &[]), None);
    assert_eq!(cosine(&[f32::NAN, 1.0], &[1.0, 1.0]), Some(1.0));
}

#[test]
fn relative_differences_are_at_most_two_even_at_the_ends_of_the_range() {
    let relative = |left: f64, right: f64| {
        let (left, right) = (left.to_le_bytes(), right.to_le_bytes());
        let found = Difference::between((DType::F64, &left), (DType::F64, &right), NONE).unwrap();
        found.max_relative
    };
    assert_eq!(relative(1.0, -1.0), 2.0);
    assert_eq!(relative(f64::MAX, f64::MIN), 2.0);
    assert_eq!(relative(f64::INFINITY, f64::NEG_INFINITY), 2.0);
    assert_eq!(relative(f64::INFINITY, 1.0), 1.0);
    assert_eq!(relative(1.0, 0.0), 1.0);
    assert_eq!(relative(0.0, -0.0), 0.0);
}

#[test]
fn rows_of_different_lengths_are_refused() {
    let refused = |left: &[u8], right: &[u8]| {
        Difference::between((DType::F32, left), (DType::F32, right), NONE).is_err()
    };
    assert!(refused(&[0; 4], &[0; 8]) && refused(&[0; 3], &[0; 3]));
}
