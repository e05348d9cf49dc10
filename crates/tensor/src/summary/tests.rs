//! Moments are compared with their definition, summed in twice the precision.

use super::*;
use proptest::prelude::*;

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn of(values: &[f32]) -> Summary {
    Summary::of(DType::F32, &bytes(values)).unwrap()
}

/// Mean and standard deviation by the definition, two passes with compensated sums.
fn by_definition(values: &[f64]) -> (f64, f64) {
    let sum = |terms: &mut dyn Iterator<Item = f64>| {
        let (mut sum, mut rest) = (0.0_f64, 0.0);
        for term in terms {
            let next = sum + term;
            rest += match sum.abs() >= term.abs() {
                true => (sum - next) + term,
                false => (term - next) + sum,
            };
            sum = next;
        }
        sum + rest
    };
    let count = values.len() as f64;
    let mean = sum(&mut values.iter().copied()) / count;
    let squares = sum(&mut values.iter().map(|value| (value - mean) * (value - mean)));
    (mean, (squares / count).sqrt())
}

fn close(found: f64, expected: f64, scale: f64) -> bool {
    (found - expected).abs() <= 1e-13 * scale.abs().max(f64::MIN_POSITIVE)
}

proptest! {
    #[test]
    fn moments_are_those_of_the_definition(
        values in proptest::collection::vec(-1e3f32..1e3, 1..3000),
        offset in prop_oneof![Just(0.0f32), Just(1e6), Just(-3e7)],
    ) {
        let values: Vec<f32> = values.iter().map(|value| value + offset).collect();
        let wide: Vec<f64> = values.iter().copied().map(f64::from).collect();
        let (mean, std) = by_definition(&wide);
        let summary = of(&values);
        let scale = summary.absmax().unwrap();
        prop_assert!(close(summary.mean().unwrap(), mean, scale));
        prop_assert!(close(summary.std().unwrap(), std, scale));
        prop_assert_eq!(summary.elements, values.len() as u64);
    }

    #[test]
    fn parts_appended_are_the_whole(
        values in proptest::collection::vec(any::<f32>(), 0..4000),
        cut in 0usize..4000,
    ) {
        let cut = cut.min(values.len());
        let mut parts = of(&values[..cut]);
        parts.append(&of(&values[cut..]));
        let whole = of(&values);
        let counts = |summary: &Summary| (summary.nan, summary.infinite, summary.zeros);
        prop_assert_eq!(counts(&whole), counts(&parts));
        prop_assert_eq!((whole.min(), whole.max()), (parts.min(), parts.max()));
        if let (Some(scale), Some(mean)) = (whole.absmax(), whole.mean()) {
            prop_assert!(close(parts.mean().unwrap(), mean, scale));
            prop_assert!(close(parts.std().unwrap(), whole.std().unwrap(), scale));
        }
    }
}

#[test]
fn nothing_has_no_moments() {
    let summary = Summary::of(DType::F32, &[]).unwrap();
    assert_eq!(summary, Summary::default());
    assert_eq!(
        (summary.mean(), summary.std(), summary.sparsity()),
        (None, None, None)
    );
    let broken = of(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
    assert_eq!((broken.nan, broken.infinite, broken.mean()), (1, 2, None));
}

#[test]
fn nan_and_infinity_are_counted_and_no_part_of_the_moments() {
    let summary = of(&[1.0, f32::NAN, 3.0, f32::NEG_INFINITY, 0.0, -0.0]);
    assert_eq!(
        (
            summary.elements,
            summary.nan,
            summary.infinite,
            summary.zeros
        ),
        (6, 1, 1, 2)
    );
    assert_eq!(
        (summary.min(), summary.max(), summary.mean()),
        (Some(0.0), Some(3.0), Some(1.0))
    );
}

#[test]
fn the_largest_numbers_have_a_mean() {
    let of = |values: &[f64]| {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Summary::of(DType::F64, &bytes).unwrap()
    };
    assert_eq!(of(&[f64::MAX, f64::MAX]).mean(), Some(f64::MAX));
    let mut far = of(&[f64::MAX]);
    far.append(&of(&[f64::MIN]));
    assert_eq!(far.mean(), Some(0.0));
    let tiny = of(&[5e-324, 5e-324]);
    assert_eq!((tiny.mean(), tiny.std()), (Some(5e-324), Some(0.0)));
}

#[test]
fn a_large_common_offset_does_not_hide_the_spread() {
    let values: Vec<f32> = (0..10_000).map(|n| 8_388_608.0 + (n % 2) as f32).collect();
    assert!(close(of(&values).std().unwrap(), 0.5, 1.0));
}

#[test]
fn every_type_is_read() {
    let ones = |dtype: DType| {
        let source = [1; 8];
        let mut target = vec![0; dtype.len_bytes(8).unwrap()];
        crate::cast(
            DType::U8,
            dtype,
            &source,
            &mut target,
            crate::Overflow::Native,
        )
        .unwrap();
        Summary::of(dtype, &target).unwrap()
    };
    for dtype in DType::ALL {
        let (elements, zeros) = if dtype == DType::C64 { (16, 8) } else { (8, 0) };
        let summary = ones(dtype);
        assert_eq!(
            (summary.elements, summary.zeros, summary.max()),
            (elements, zeros, Some(1.0)),
            "{dtype}"
        );
    }
    assert!(Summary::of(DType::F32, &[0; 3]).is_err());
}
