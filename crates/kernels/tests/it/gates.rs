//! Activations element by element, and softmax.

use crate::support::{check_gradients, close, inner, random, same_on_all_threads};
use cairn_kernels::{Pool, gelu, softmax, swiglu};

#[test]
fn gradients_of_swiglu_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    for len in [0, 1, 37] {
        let (gate, up, slope) = (random(1, len), random(2, len), random(3, len));
        let (mut of_gate, mut of_up) = (vec![0.0; len], vec![0.0; len]);
        swiglu::backward(&pool, &gate, &up, &slope, &mut of_gate, &mut of_up);
        check_gradients([&gate, &up], [&of_gate, &of_up], |[gate, up]| {
            let mut y = vec![0.0; len];
            swiglu::forward(&pool, gate, up, &mut y);
            inner(&slope, &y)
        });
    }
}

#[test]
fn gradients_of_gelu_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    for len in [0, 1, 37] {
        let (x, slope) = (random(1, len), random(2, len));
        let mut gradient = vec![0.0; len];
        gelu::backward(&pool, &x, &slope, &mut gradient);
        check_gradients([&x], [&gradient], |[x]| {
            let mut y = vec![0.0; len];
            gelu::forward(&pool, x, &mut y);
            inner(&slope, &y)
        });
    }
}

#[test]
fn gelu_is_that_of_torch() {
    let x = [-3.0, -1.0, -0.1, 0.0, 0.5, 2.0_f32];
    let expected = [
        0xBB6E_6200,
        0xBE22_9E90,
        0xBD3C_7C95,
        0x0000_0000,
        0x3EB1_016D,
        0x3FFA_3042_u32,
    ];
    let mut y = [0.0; 6];
    gelu::forward(&Pool::new(1), &x, &mut y);
    assert!(close(&y, &expected.map(f32::from_bits), 1e-7), "{y:?}");
}

#[test]
fn gates_are_shut_and_open_at_the_ends() {
    let pool = Pool::new(1);
    let gate = [-1e4, 1e4, f32::NEG_INFINITY, f32::NAN];
    let (mut y, mut of_gate, mut of_up) = ([0.0; 4], [0.0; 4], [0.0; 4]);
    swiglu::forward(&pool, &gate, &[1.0; 4], &mut y);
    swiglu::backward(&pool, &gate, &[1.0; 4], &[1.0; 4], &mut of_gate, &mut of_up);
    assert_eq!(y[..2], [0.0, 1e4]);
    assert_eq!(of_gate[..2], [0.0, 1.0]);
    assert!(y[3].is_nan() && of_gate[3].is_nan() && of_up[3].is_nan());
}

#[test]
fn gradients_of_softmax_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    for (rows, width) in [(0, 3), (1, 1), (3, 17), (2, 40)] {
        let (x, slope) = (random(1, rows * width), random(2, rows * width));
        let forward = |x: &[f64]| {
            let mut y = x.to_vec();
            softmax::forward(&pool, width, &mut y);
            y
        };
        let mut gradient = slope.clone();
        softmax::backward(&pool, width, &forward(&x), &mut gradient);
        check_gradients([&x], [&gradient], |[x]| inner(&slope, &forward(x)));
    }
}

#[test]
fn probabilities_add_up_to_one_whatever_the_level() {
    let mut x: Vec<f32> = random(1, 40);
    x.iter_mut().for_each(|x| *x += 1e4);
    x[3] = f32::NEG_INFINITY;
    softmax::forward(&Pool::new(1), 40, &mut x);
    assert!(close(&[x.iter().sum::<f32>()], &[1.0], 1e-6));
    assert_eq!(x[3], 0.0);
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let len = 101 * 513;
    let [x, up, slope] = [1, 2, 3].map(|seed| random::<f32>(seed, len));
    same_on_all_threads(|pool| {
        let mut all = vec![vec![0.0; len]; 5];
        let [silu, of_gate, of_up, gelu, of_gelu] = &mut all[..] else {
            unreachable!("there are five");
        };
        swiglu::forward(pool, &x, &up, silu);
        swiglu::backward(pool, &x, &up, &slope, of_gate, of_up);
        gelu::forward(pool, &x, gelu);
        gelu::backward(pool, &x, &slope, of_gelu);
        let mut probabilities = x.clone();
        softmax::forward(pool, 513, &mut probabilities);
        let mut gradient = slope.clone();
        softmax::backward(pool, 513, &probabilities, &mut gradient);
        all.extend([probabilities, gradient]);
        all
    });
}
