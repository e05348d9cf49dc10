//! Flat memory: sums, types, and what is counted.

use crate::support::{random, same_on_all_threads};
use cairn_kernels::Pool;
use cairn_kernels::elementwise::{
    add, all_finite, axpy, multiply, narrow, scale, sum, sum_of_squares, widen, zero,
};

#[test]
fn arithmetic_is_that_of_each_element() {
    let pool = Pool::new(2);
    let mut y = [1.0, 2.0, 3.0_f32];
    add(&pool, &[1.0, 1.0, 1.0], &mut y);
    scale(&pool, 2.0, &mut y);
    axpy(&pool, -1.0, &[1.0, 0.0, 0.0], &mut y);
    multiply(&pool, &[1.0, 1.0, 0.5], &mut y);
    assert_eq!(y, [3.0, 6.0, 4.0]);
    assert_eq!((sum(&pool, &y), sum_of_squares(&pool, &y)), (13.0, 61.0));
    zero(&pool, &mut y);
    assert_eq!(y, [0.0; 3]);
}

#[test]
fn every_bf16_survives_widening_and_narrowing() {
    let pool = Pool::new(2);
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let (mut wide, mut back) = (vec![0.0; all.len()], vec![0; all.len()]);
    widen(&pool, &all, &mut wide);
    narrow(&pool, &wide, &mut back);
    for ((&bits, back), wide) in all.iter().zip(back).zip(wide) {
        let quiet = if wide.is_nan() { bits | 0x40 } else { bits };
        assert_eq!(back, quiet);
    }
}

#[test]
fn ties_go_to_the_even_neighbour() {
    let x = [
        0x3F80_8000,
        0x3F81_8000,
        0x3F80_8001,
        0x7F7F_FFFF,
        0x7F80_0001,
        0xFF80_0000_u32,
    ];
    let mut y = [0; 6];
    narrow(&Pool::new(1), &x.map(f32::from_bits), &mut y);
    assert_eq!(y, [0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x7FC0, 0xFF80]);
}

#[test]
fn one_element_that_is_no_number_is_found_anywhere() {
    let pool = Pool::new(2);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in [0, 16_383, 16_384, 99_999] {
            let mut x = vec![1.0; 100_000];
            assert!(all_finite(&pool, &x));
            x[place] = bad;
            assert!(!all_finite(&pool, &x));
            assert!(!sum_of_squares(&pool, &x).is_finite());
        }
    }
    assert!(all_finite::<f32>(&pool, &[]));
}

#[test]
fn sums_do_not_depend_on_the_threads() {
    let x = random::<f32>(1, 200_001);
    let total = |threads| {
        (
            sum(&Pool::new(threads), &x),
            sum_of_squares(&Pool::new(threads), &x),
        )
    };
    for threads in [2, 3, 7] {
        assert_eq!(total(threads), total(1));
    }
    same_on_all_threads(|pool| {
        let mut y = x.clone();
        axpy(pool, 0.3, &x, &mut y);
        vec![y]
    });
}
