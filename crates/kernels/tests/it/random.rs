//! Streams by place, and dropout.

use crate::support::{check_gradients, inner, random, same_on_all_threads};
use cairn_kernels::Pool;
use cairn_kernels::dropout::Dropout;
use cairn_kernels::random::Stream;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_part_of_a_stream_is_the_same_as_in_the_whole(start in 0..50_usize, len in 0..50_usize, high in 0..u64::MAX / 2) {
        let (pool, stream) = (Pool::new(1), Stream::new(3).with(1));
        let whole = |fill: &dyn Fn(u64, &mut [f32])| {
            let mut whole = [0.0; 100];
            fill(high, &mut whole);
            let mut part = vec![0.0; len];
            fill(high + start as u64, &mut part);
            (whole[start..start + len].to_vec(), part)
        };
        let (expected, part) = whole(&|first, x| stream.fill_uniform(&pool, first, x));
        prop_assert_eq!(expected, part);
        let (expected, part) = whole(&|first, x| stream.fill_normal(&pool, first, x));
        prop_assert_eq!(expected, part);
        let dropout = Dropout { stream, rate: 0.5 };
        let (expected, part) = whole(&|first, x| {
            x.fill(1.0);
            dropout.apply(&pool, first, x);
        });
        prop_assert_eq!(expected, part);
    }
}

#[test]
fn streams_of_other_names_are_others() {
    let stream = Stream::new(1);
    let blocks = [
        stream.block(0),
        stream.block(1),
        Stream::new(2).block(0),
        stream.with(0).block(0),
        stream.with(1).block(0),
        stream.with(0).with(1).block(0),
        stream.with(1).with(0).block(0),
        stream.with(1 << 32).block(0),
    ];
    for (index, block) in blocks.iter().enumerate() {
        assert!(!blocks[..index].contains(block));
    }
}

#[test]
fn moments_are_those_of_their_distributions() {
    let pool = Pool::new(2);
    let mut x = vec![0.0_f64; 1 << 18];
    let moment =
        |x: &[f64], power: i32| x.iter().map(|x| x.powi(power)).sum::<f64>() / x.len() as f64;
    Stream::new(5).fill_uniform(&pool, 0, &mut x);
    assert!(x.iter().all(|x| (0.0..1.0).contains(x)));
    assert!((moment(&x, 1) - 0.5).abs() < 3e-3);
    assert!((moment(&x, 2) - 1.0 / 3.0).abs() < 3e-3);
    Stream::new(5).fill_normal(&pool, 0, &mut x);
    for (power, expected) in [(1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)] {
        assert!(
            (moment(&x, power) - expected).abs() < 5e-2,
            "moment {power}"
        );
    }
}

#[test]
fn dropout_keeps_the_expectation_and_drops_the_same_in_the_backward() {
    let pool = Pool::new(2);
    let dropout = Dropout {
        stream: Stream::new(7),
        rate: 0.25,
    };
    let mut ones = vec![1.0_f64; 1 << 16];
    dropout.apply(&pool, 0, &mut ones);
    let dropped = ones.iter().filter(|&&x| x == 0.0).count();
    assert!(dropped.abs_diff(1 << 14) < 500, "{dropped}");
    assert!(ones.iter().all(|&x| x == 0.0 || x == 4.0 / 3.0));
    let (x, slope) = (random(1, 23), random(2, 23));
    let mut gradient = slope.clone();
    dropout.apply(&pool, 5, &mut gradient);
    check_gradients([&x], [&gradient], |[x]| {
        let mut y = x.to_vec();
        dropout.apply(&pool, 5, &mut y);
        inner(&slope, &y)
    });
}

#[test]
fn rates_of_none_and_all_are_exact() {
    let pool = Pool::new(1);
    for (rate, expected) in [(0.0, 3.0), (1.0, 0.0)] {
        let mut x = [3.0_f32; 9];
        Dropout {
            stream: Stream::new(0),
            rate,
        }
        .apply(&pool, 0, &mut x);
        assert_eq!(x, [expected; 9]);
    }
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    same_on_all_threads(|pool| {
        let mut all = vec![vec![1.0; 100_003]; 3];
        Stream::new(1).fill_uniform(pool, 1, &mut all[0]);
        Stream::new(1).fill_normal(pool, 2, &mut all[1]);
        Dropout {
            stream: Stream::new(1),
            rate: 0.1,
        }
        .apply(pool, 3, &mut all[2]);
        all
    });
}
