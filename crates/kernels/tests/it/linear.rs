//! Linear layers: the gradients of input, weight and bias.

use crate::support::{check_gradients, inner, random, same_on_all_threads};
use cairn_kernels::Pool;
use cairn_kernels::gemm::Write;
use cairn_kernels::linear::Linear;

const SIZES: [Linear; 4] = [
    Linear {
        tokens: 1,
        inputs: 1,
        outputs: 1,
    },
    Linear {
        tokens: 1,
        inputs: 7,
        outputs: 5,
    },
    Linear {
        tokens: 9,
        inputs: 4,
        outputs: 3,
    },
    Linear {
        tokens: 0,
        inputs: 3,
        outputs: 2,
    },
];

#[test]
fn gradients_are_those_of_finite_differences() {
    let pool = Pool::new(2);
    for size in SIZES {
        let x = random(1, size.tokens * size.inputs);
        let weight = random(2, size.outputs * size.inputs);
        let bias = random(3, size.outputs);
        let slope = random(4, size.tokens * size.outputs);
        let mut input = vec![0.0; x.len()];
        size.input_gradient(&pool, &slope, &weight, Write::Replace, &mut input);
        let mut of_weight = vec![0.0; weight.len()];
        size.weight_gradient(&pool, &x, &slope, &mut of_weight);
        let mut of_bias = vec![0.0; bias.len()];
        size.bias_gradient(&pool, &slope, &mut of_bias);
        let loss = |[x, weight, bias]: [&[f64]; 3]| {
            let mut y = vec![f64::NAN; slope.len()];
            size.forward(&pool, x, weight, Some(bias), &mut y);
            inner(&slope, &y)
        };
        check_gradients([&x, &weight, &bias], [&input, &of_weight, &of_bias], loss);
    }
}

#[test]
fn gradients_of_parameters_add_up() {
    let (pool, size) = (Pool::new(1), SIZES[2]);
    let x = random::<f64>(1, size.tokens * size.inputs);
    let slope = random::<f64>(2, size.tokens * size.outputs);
    let run = |times: usize| {
        let mut weight = vec![0.0; size.outputs * size.inputs];
        let mut bias = vec![0.0; size.outputs];
        for _ in 0..times {
            size.weight_gradient(&pool, &x, &slope, &mut weight);
            size.bias_gradient(&pool, &slope, &mut bias);
        }
        [weight, bias].concat()
    };
    let twice: Vec<f64> = run(1).iter().map(|x| x + x).collect();
    assert_eq!(run(2), twice);
}

#[test]
fn bits_do_not_depend_on_the_threads() {
    let size = Linear {
        tokens: 301,
        inputs: 260,
        outputs: 517,
    };
    let x = random::<f32>(1, size.tokens * size.inputs);
    let weight = random::<f32>(2, size.outputs * size.inputs);
    let bias = random::<f32>(3, size.outputs);
    let slope = random::<f32>(4, size.tokens * size.outputs);
    same_on_all_threads(|pool| {
        let mut y = vec![0.0; slope.len()];
        size.forward(pool, &x, &weight, Some(&bias), &mut y);
        let mut input = vec![0.0; x.len()];
        size.input_gradient(pool, &slope, &weight, Write::Replace, &mut input);
        let mut of_weight = vec![0.0; weight.len()];
        size.weight_gradient(pool, &x, &slope, &mut of_weight);
        let mut of_bias = vec![0.0; bias.len()];
        size.bias_gradient(pool, &slope, &mut of_bias);
        vec![y, input, of_weight, of_bias]
    });
}
