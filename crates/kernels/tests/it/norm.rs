//! Norms: statistics of rows and the gradients.

use crate::support::{check_gradients, close, inner, random, same_on_all_threads};
use cairn_kernels::Pool;
use cairn_kernels::norm::{LayerNorm, RmsNorm};

const SIZES: [(usize, usize); 6] = [(0, 5), (1, 1), (1, 16), (3, 7), (5, 33), (2, 140)];

#[test]
fn gradients_of_the_root_mean_square_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    for (rows, width) in SIZES {
        let x = random(1, rows * width);
        let weight = random(2, width);
        let slope = random(3, rows * width);
        let forward = |x: &[f64], weight: &[f64]| {
            let (mut y, mut inverse) = (vec![0.0; x.len()], vec![0.0; rows]);
            let norm = RmsNorm {
                weight,
                epsilon: 1e-2,
            };
            norm.forward(&pool, x, &mut y, &mut inverse);
            (y, inverse)
        };
        let inverse = forward(&x, &weight).1;
        let (mut of_x, mut of_weight) = (vec![0.0; x.len()], vec![0.0; width]);
        let norm = RmsNorm {
            weight: &weight,
            epsilon: 1e-2,
        };
        norm.backward(&pool, &x, &inverse, &slope, &mut of_x, &mut of_weight);
        check_gradients([&x, &weight], [&of_x, &of_weight], |[x, weight]| {
            inner(&slope, &forward(x, weight).0)
        });
    }
}

#[test]
fn gradients_of_the_layer_norm_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    for (rows, width) in SIZES {
        let x = random(1, rows * width);
        let (weight, bias) = (random(2, width), random(3, width));
        let slope = random(4, rows * width);
        let forward = |x: &[f64], weight: &[f64], bias: &[f64]| {
            let (mut y, mut statistics) = (vec![0.0; x.len()], vec![[0.0; 2]; rows]);
            let norm = LayerNorm {
                weight,
                bias,
                epsilon: 1e-2,
            };
            norm.forward(&pool, x, &mut y, &mut statistics);
            (y, statistics)
        };
        let statistics = forward(&x, &weight, &bias).1;
        let mut of_x = vec![0.0; x.len()];
        let (mut of_weight, mut of_bias) = (vec![0.0; width], vec![0.0; width]);
        let norm = LayerNorm {
            weight: &weight,
            bias: &bias,
            epsilon: 1e-2,
        };
        let parameters = [&mut of_weight[..], &mut of_bias];
        norm.backward(&pool, &x, &statistics, &slope, &mut of_x, parameters);
        let gradients = [&of_x[..], &of_weight, &of_bias];
        check_gradients([&x, &weight, &bias], gradients, |[x, weight, bias]| {
            inner(&slope, &forward(x, weight, bias).0)
        });
    }
}

#[test]
fn rows_have_a_root_mean_square_of_one_after_their_norm() {
    let x = random::<f32>(1, 3 * 257);
    let weight = vec![1.0; 257];
    let (mut y, mut inverse) = (vec![0.0; x.len()], vec![0.0; 3]);
    let norm = RmsNorm {
        weight: &weight,
        epsilon: 0.0,
    };
    norm.forward(&Pool::new(1), &x, &mut y, &mut inverse);
    for row in y.chunks(257) {
        let mean = row.iter().map(|x| x * x).sum::<f32>() / 257.0;
        assert!(close(&[mean], &[1.0], 1e-5));
    }
}

#[test]
fn a_large_mean_costs_no_precision() {
    // Sums of squares less the square of the sum would leave nothing of these.
    let x: Vec<f32> = [1.0, 2.0, 3.0, 4.0].map(|x| x + 4096.0).into();
    let (weight, bias) = ([1.0; 4], [0.0; 4]);
    let (mut y, mut statistics) = ([0.0; 4], [[0.0; 2]; 1]);
    let norm = LayerNorm {
        weight: &weight,
        bias: &bias,
        epsilon: 0.0,
    };
    norm.forward(&Pool::new(1), &x, &mut y, &mut statistics);
    let expected = [-1.341_640_8, -0.447_213_6, 0.447_213_6, 1.341_640_8];
    assert!(close(&y, &expected, 1e-6), "{y:?}");
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let (rows, width) = (301, 389);
    let x = random::<f32>(1, rows * width);
    let (weight, bias) = (random::<f32>(2, width), random::<f32>(3, width));
    let slope = random::<f32>(4, rows * width);
    same_on_all_threads(|pool| {
        let norm = RmsNorm {
            weight: &weight,
            epsilon: 1e-5,
        };
        let (mut y, mut inverse) = (vec![0.0; x.len()], vec![0.0; rows]);
        norm.forward(pool, &x, &mut y, &mut inverse);
        let (mut of_x, mut of_weight) = (vec![0.0; x.len()], vec![0.0; width]);
        norm.backward(pool, &x, &inverse, &slope, &mut of_x, &mut of_weight);
        let norm = LayerNorm {
            weight: &weight,
            bias: &bias,
            epsilon: 1e-5,
        };
        let (mut z, mut statistics) = (vec![0.0; x.len()], vec![[0.0; 2]; rows]);
        norm.forward(pool, &x, &mut z, &mut statistics);
        let (mut layer_x, mut of_bias) = (vec![0.0; x.len()], vec![0.0; width]);
        let parameters = [&mut of_weight[..], &mut of_bias];
        norm.backward(pool, &x, &statistics, &slope, &mut layer_x, parameters);
        vec![y, of_x, of_weight, z, layer_x, of_bias]
    });
}

#[test]
fn what_is_no_number_stays_in_its_row() {
    let mut x = random::<f32>(1, 3 * 20);
    x[25] = f32::NAN;
    let weight = [1.0; 20];
    let (mut y, mut inverse) = (vec![0.0; x.len()], vec![0.0; 3]);
    let norm = RmsNorm {
        weight: &weight,
        epsilon: 1e-5,
    };
    norm.forward(&Pool::new(1), &x, &mut y, &mut inverse);
    assert!(y[20..40].iter().all(|x| x.is_nan()));
    assert!(y[..20].iter().chain(&y[40..]).all(|x| x.is_finite()));
}
