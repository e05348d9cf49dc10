//! Goal: every reduction of every type gives what its elements say. Method: small numbers that all
//! types hold exactly, then the edges of each kind of type.

use super::*;
use crate::{cast, format_element};

/// Elements of `dtype` with these values.
fn elements(dtype: DType, values: &[i64]) -> Vec<u8> {
    let source: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let mut target = vec![0; dtype.len_bytes(values.len()).unwrap()];
    cast(DType::I64, dtype, &source, &mut target, Overflow::Native).unwrap();
    target
}

fn texts(dtype: DType, bytes: &[u8]) -> Vec<String> {
    (0..)
        .map_while(|index| format_element(dtype, bytes, index))
        .collect()
}

fn reduced(op: ReduceOp, dtype: DType, left: &[i64], right: &[i64]) -> Vec<String> {
    let mut accumulator = elements(dtype, left);
    reduce_into(op, dtype, &mut accumulator, &elements(dtype, right)).unwrap();
    texts(dtype, &accumulator)
}

#[test]
fn every_numeric_type_is_reduced_by_every_numeric_reduction() {
    let real = DType::ALL
        .into_iter()
        .filter(|&dtype| dtype != DType::Bool && dtype != DType::C64);
    for dtype in real.filter(|&dtype| dtype != DType::F8E8M0) {
        let (left, right) = ([0, 1, 2, 3].repeat(300), [3, 1, 1, 0].repeat(300));
        let expect = |op, expected: [i64; 4]| {
            let expected = texts(dtype, &elements(dtype, &expected.repeat(300)));
            assert_eq!(reduced(op, dtype, &left, &right), expected, "{op} {dtype}");
        };
        expect(ReduceOp::Sum, [3, 2, 3, 3]);
        expect(ReduceOp::Avg, [3, 2, 3, 3]);
        expect(ReduceOp::Prod, [0, 1, 2, 0]);
        expect(ReduceOp::Max, [3, 1, 2, 3]);
        expect(ReduceOp::Min, [0, 1, 1, 0]);
    }
}

#[test]
fn truth_values_are_reduced_as_truth() {
    for (op, expected) in [
        (ReduceOp::Any, [0, 1, 1, 1]),
        (ReduceOp::Max, [0, 1, 1, 1]),
        (ReduceOp::All, [0, 0, 0, 1]),
        (ReduceOp::Min, [0, 0, 0, 1]),
    ] {
        let mut accumulator = [0, 0, 5, 5];
        reduce_into(op, DType::Bool, &mut accumulator, &[0, 3, 0, 3]).unwrap();
        assert_eq!(accumulator, expected, "{op}");
    }
}

#[test]
fn complex_numbers_are_added_multiplied_and_averaged() {
    let complex = |values: &[f32]| {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let (left, right) = (
        complex(&[1.0, 2.0].repeat(600)),
        complex(&[3.0, -1.0].repeat(600)),
    );
    let mut product = left.clone();
    reduce_into(ReduceOp::Prod, DType::C64, &mut product, &right).unwrap();
    assert_eq!(texts(DType::C64, &product), vec!["5+5i"; 600]);
    let mut average = left;
    reduce_into(ReduceOp::Avg, DType::C64, &mut average, &right).unwrap();
    finish_average(DType::C64, &mut average, 2).unwrap();
    assert_eq!(texts(DType::C64, &average), vec!["2+0.5i"; 600]);
}

#[test]
fn integers_wrap_around_and_averages_truncate() {
    assert_eq!(
        reduced(ReduceOp::Sum, DType::I8, &[127, -128], &[1, -1]),
        ["-128", "127"]
    );
    assert_eq!(
        reduced(ReduceOp::Prod, DType::U8, &[16, 15], &[16, 15]),
        ["0", "225"]
    );
    let mut sums = elements(DType::I8, &[7, -7, -128]);
    finish_average(DType::I8, &mut sums, 2).unwrap();
    assert_eq!(texts(DType::I8, &sums), ["3", "-3", "-64"]);
    finish_average(DType::I8, &mut sums, usize::MAX).unwrap();
    assert_eq!(texts(DType::I8, &sums), ["0", "0", "0"]);
}

#[test]
fn averages_of_floats_are_rounded_to_the_nearest() {
    for (dtype, expected) in [
        (DType::F32, "0.33333334"),
        (DType::F64, "0.3333333333333333"),
        (DType::Bf16, "0.334"),
    ] {
        let mut sums = elements(dtype, &[1]);
        finish_average(dtype, &mut sums, 3).unwrap();
        assert_eq!(texts(dtype, &sums), [expected]);
    }
}

#[test]
fn small_floats_are_added_in_f32_and_rounded_once() {
    // 256 + 1 is the middle of two bf16 neighbours and goes to the even one; 256 + 3 does not.
    assert_eq!(
        reduced(ReduceOp::Sum, DType::Bf16, &[256, 256], &[1, 3]),
        ["256", "260"]
    );
    assert_eq!(
        reduced(ReduceOp::Sum, DType::F8E4M3, &[448], &[448]),
        ["NaN"]
    );
    assert_eq!(
        reduced(ReduceOp::Sum, DType::F8E5M2, &[57344], &[57344]),
        ["inf"]
    );
    assert_eq!(
        reduced(ReduceOp::Sum, DType::F4, &[6, 6], &[6, -6]),
        ["6", "0"]
    );
}

#[test]
fn nan_is_both_the_largest_and_the_smallest() {
    for op in [ReduceOp::Max, ReduceOp::Min] {
        for (left, right) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            let mut accumulator = left.to_le_bytes();
            reduce_into(op, DType::F32, &mut accumulator, &right.to_le_bytes()).unwrap();
            assert!(f32::from_le_bytes(accumulator).is_nan());
        }
    }
}

#[test]
fn a_reduction_that_does_not_apply_is_refused_and_the_others_are_listed() {
    for dtype in DType::ALL {
        for op in ReduceOp::ALL {
            let len = dtype.len_bytes(4).unwrap();
            let result = reduce_into(op, dtype, &mut vec![0; len], &vec![0; len]);
            assert_eq!(result.is_ok(), op.applies_to(dtype), "{op} {dtype}");
        }
    }
    let error = reduce_into(ReduceOp::Max, DType::C64, &mut [], &[]).unwrap_err();
    assert_eq!(error.to_string(), "cannot reduce `c64` by `max`");
    assert_eq!(
        error.hint().unwrap(),
        "a reduction of `c64` is one of `sum`, `avg`, `prod`"
    );
}

#[test]
fn buffers_of_the_wrong_length_are_refused() {
    let sum = |accumulator: usize, source: usize| {
        reduce_into(
            ReduceOp::Sum,
            DType::F32,
            &mut vec![0; accumulator],
            &vec![0; source],
        )
        .unwrap_err()
    };
    assert_eq!(
        sum(5, 5),
        Error::PartialElement {
            dtype: DType::F32,
            len: 5
        }
    );
    assert_eq!(
        sum(8, 4),
        Error::WrongLength {
            buffer: "source",
            dtype: DType::F32,
            len: 4,
            expected: 8
        }
    );
    assert_eq!(
        finish_average(DType::F32, &mut [0; 4], 0),
        Err(Error::EmptyAverage)
    );
    assert_eq!(
        finish_average(DType::Bool, &mut [0; 4], 2),
        Err(Error::UnsupportedReduce {
            op: ReduceOp::Avg,
            dtype: DType::Bool
        })
    );
}

#[test]
fn names_parse_back() {
    for op in ReduceOp::ALL {
        assert_eq!(op.to_string().parse::<ReduceOp>().unwrap(), op);
    }
    let error = "mean".parse::<ReduceOp>().unwrap_err();
    assert_eq!(
        error.hint().unwrap(),
        "a reduction is one of `sum`, `avg`, `max`, `min`, `prod`, `any`, `all`"
    );
}
