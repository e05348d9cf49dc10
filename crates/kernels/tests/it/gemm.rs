//! Products against three loops, with strides, at sizes around the tiles of the library.

use crate::support::{close, random, same_on_all_threads};
use cairn_kernels::gemm::{Matrix, Product, Target, Write, matmul};
use cairn_kernels::{Pool, Real};
use proptest::prelude::*;

fn size(rows: usize, columns: usize, inner: usize) -> Product {
    Product {
        rows,
        columns,
        inner,
    }
}

/// The product of `a[rows, inner]` and `b[inner, columns]`, by hand.
fn naive<R: Real>(size: Product, a: &[R], b: &[R]) -> Vec<R> {
    let mut c = Vec::new();
    for row in 0..size.rows {
        for column in 0..size.columns {
            let terms =
                (0..size.inner).map(|i| a[row * size.inner + i] * b[i * size.columns + column]);
            c.push(terms.fold(R::ZERO, |sum, term| sum + term));
        }
    }
    c
}

fn transpose<R: Real>(rows: usize, columns: usize, x: &[R]) -> Vec<R> {
    let places = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    places.map(|place| x[place]).collect()
}

fn target<R>(elements: &mut [R], row_stride: usize, write: Write) -> Target<'_, R> {
    Target {
        elements,
        row_stride,
        write,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn products_of_all_layouts_are_those_of_three_loops(
        rows in 0..70_usize,
        columns in 0..70_usize,
        inner in 0..40_usize,
        transposed in any::<[bool; 2]>(),
        gap in 0..3_usize,
        add in any::<bool>(),
    ) {
        let size = size(rows, columns, inner);
        let (a, b) = (random::<f64>(1, rows * inner), random::<f64>(2, inner * columns));
        let expected = naive(size, &a, &b);
        let turned = [transpose(rows, inner, &a), transpose(inner, columns, &b)];
        let a = if transposed[0] { Matrix::new(&turned[0], rows).transposed() } else { Matrix::new(&a, inner) };
        let b = if transposed[1] { Matrix::new(&turned[1], inner).transposed() } else { Matrix::new(&b, columns) };
        let stride = columns + gap;
        let mut c = vec![7.0; rows * stride];
        let write = if add { Write::Add } else { Write::Replace };
        matmul(&Pool::new(2), size, a, b, target(&mut c, stride, write));
        for (row, c) in c.chunks(stride.max(1)).enumerate() {
            let before = if add { 7.0 } else { 0.0 };
            let expected: Vec<f64> = expected[row * columns..][..columns].iter().map(|x| x + before).collect();
            prop_assert!(close(&c[..columns], &expected, 1e-12));
            prop_assert!(c[columns..].iter().all(|&x| x == 7.0), "a gap between rows was written");
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let sizes = [
        size(257, 130, 65),
        size(130, 257, 700),
        size(520, 300, 1376),
        size(300, 520, 1024),
        size(1000, 17, 33),
        size(17, 1000, 33),
        size(2048, 16, 3),
        size(1, 4096, 512),
        size(4096, 1, 512),
        size(3, 4096, 600),
        size(300, 300, 2),
        size(64, 64, 2000),
    ];
    for size in sizes {
        let (rows, columns, inner) = (size.rows, size.columns, size.inner);
        let (a, b) = (
            random::<f32>(3, rows * inner),
            random::<f32>(4, inner * columns),
        );
        same_on_all_threads(|pool| {
            let factors = [
                [Matrix::new(&a, inner), Matrix::new(&b, columns)],
                [Matrix::new(&a, inner), Matrix::new(&b, inner).transposed()],
                [Matrix::new(&a, rows).transposed(), Matrix::new(&b, columns)],
            ];
            let products = factors.map(|[a, b]| {
                let mut c = vec![1.0; rows * columns];
                matmul(pool, size, a, b, target(&mut c, columns, Write::Replace));
                matmul(pool, size, a, b, target(&mut c, columns, Write::Add));
                c
            });
            products.into()
        });
    }
}

#[test]
fn an_empty_sum_is_zero_and_leaves_what_is_added_to() {
    let (pool, empty) = (Pool::new(2), Matrix::new(&[] as &[f32], 0));
    let mut c = [f32::NAN; 4];
    matmul(
        &pool,
        size(2, 2, 0),
        empty,
        empty,
        target(&mut c, 2, Write::Replace),
    );
    assert_eq!(c, [0.0; 4]);
    c = [5.0; 4];
    matmul(
        &pool,
        size(2, 2, 0),
        empty,
        empty,
        target(&mut c, 2, Write::Add),
    );
    assert_eq!(c, [5.0; 4]);
}

#[test]
fn what_is_no_number_is_not_lost() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut a = random::<f32>(5, 100 * 70);
        a[3 * 70 + 69] = bad;
        let b = random::<f32>(6, 70 * 90);
        let mut c = vec![0.0; 100 * 90];
        let (a, b) = (Matrix::new(&a, 70), Matrix::new(&b, 90));
        matmul(
            &Pool::new(1),
            size(100, 90, 70),
            a,
            b,
            target(&mut c, 90, Write::Replace),
        );
        assert!(c[3 * 90..4 * 90].iter().all(|x| !x.is_finite()));
        assert!(c[..3 * 90].iter().all(|x| x.is_finite()));
    }
}

#[test]
#[should_panic(expected = "rows of the target overlap")]
fn rows_that_overlap_are_refused() {
    let x = [0.0; 4];
    let mut c = [0.0; 4];
    let x = Matrix::new(&x, 2);
    matmul(
        &Pool::new(1),
        size(2, 2, 2),
        x,
        x,
        target(&mut c, 1, Write::Replace),
    );
}

#[test]
#[should_panic(expected = "the first factor is short")]
fn a_factor_that_is_too_short_is_refused() {
    let mut c = [0.0; 4];
    let (a, b) = ([0.0; 3], [0.0; 4]);
    let (a, b) = (Matrix::new(&a, 2), Matrix::new(&b, 2));
    matmul(
        &Pool::new(1),
        size(2, 2, 2),
        a,
        b,
        target(&mut c, 2, Write::Replace),
    );
}

#[test]
#[should_panic(expected = "the first factor is short")]
fn strides_that_overflow_are_refused() {
    let mut c = [0.0; 4];
    let x = [0.0; 4];
    let (a, b) = (Matrix::new(&x, usize::MAX), Matrix::new(&x, 2));
    matmul(
        &Pool::new(1),
        size(3, 1, 1),
        a,
        b,
        target(&mut c, 1, Write::Replace),
    );
}
