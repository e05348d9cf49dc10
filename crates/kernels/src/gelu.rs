//! The GELU in its form with tanh: `x · (1 + tanh(√(2/π) · (x + 0.044715·x³))) / 2`, which is `x · sigmoid(2·√(2/π) · (x + 0.044715·x³))`.

use crate::pool::BLOCK;
use crate::{Pool, Real};

/// 2·√(2/π).
const SLOPE: f64 = 1.595_769_121_605_730_7;
const CUBE: f64 = 0.044_715;

/// `output = gelu(input)`, element by element.
///
/// # Panics
/// If the slices differ in length.
pub fn forward<R: Real>(pool: &Pool, input: &[R], output: &mut [R]) {
    assert_eq!(input.len(), output.len());
    let tasks = output.chunks_mut(BLOCK).zip(input.chunks(BLOCK));
    pool.each(tasks, |(output, input)| {
        for (output, &x) in output.iter_mut().zip(input) {
            *output = x * gate(x);
        }
    });
}

/// The gradient of the input, written.
///
/// # Panics
/// If the slices differ in length.
pub fn backward<R: Real>(
    pool: &Pool,
    input: &[R],
    output_gradient: &[R],
    input_gradient: &mut [R],
) {
    assert_eq!(input.len(), output_gradient.len());
    assert_eq!(input.len(), input_gradient.len());
    let inputs = input.chunks(BLOCK).zip(output_gradient.chunks(BLOCK));
    pool.each(
        input_gradient.chunks_mut(BLOCK).zip(inputs),
        |(target, (input, gradient))| {
            for ((target, &x), &gradient) in target.iter_mut().zip(input).zip(gradient) {
                let gate = gate(x);
                let rise = R::from_f64(SLOPE) * (R::ONE + R::from_f64(3.0 * CUBE) * x * x);
                *target = gradient * (gate + x * rise * gate * (R::ONE - gate));
            }
        },
    );
}

#[inline(always)]
fn gate<R: Real>(x: R) -> R {
    let inner = R::from_f64(SLOPE) * (x + R::from_f64(CUBE) * x * x * x);
    R::ONE / (R::ONE + (-inner).exp())
}
