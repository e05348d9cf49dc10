//! The gate of feed-forward layers: `silu(gate) · up`, where `silu(x) = x / (1 + e^-x)`.

use crate::pool::BLOCK;
use crate::{Pool, Real};

/// `output = silu(gate) · up`, element by element.
///
/// # Panics
/// If the slices differ in length.
pub fn forward<R: Real>(pool: &Pool, gate: &[R], up: &[R], output: &mut [R]) {
    assert_eq!(gate.len(), output.len());
    assert_eq!(up.len(), output.len());
    let inputs = gate.chunks(BLOCK).zip(up.chunks(BLOCK));
    pool.each(
        output.chunks_mut(BLOCK).zip(inputs),
        |(output, (gate, up))| {
            for ((output, &gate), &up) in output.iter_mut().zip(gate).zip(up) {
                *output = gate * sigmoid(gate) * up;
            }
        },
    );
}

/// The gradients of `gate` and `up`, written.
///
/// # Panics
/// If the slices differ in length.
pub fn backward<R: Real>(
    pool: &Pool,
    gate: &[R],
    up: &[R],
    output_gradient: &[R],
    gate_gradient: &mut [R],
    up_gradient: &mut [R],
) {
    assert_eq!(gate.len(), output_gradient.len());
    assert_eq!(up.len(), output_gradient.len());
    assert_eq!(gate_gradient.len(), output_gradient.len());
    assert_eq!(up_gradient.len(), output_gradient.len());
    let targets = gate_gradient
        .chunks_mut(BLOCK)
        .zip(up_gradient.chunks_mut(BLOCK));
    let inputs = gate.chunks(BLOCK).zip(up.chunks(BLOCK));
    let tasks = targets.zip(inputs.zip(output_gradient.chunks(BLOCK)));
    pool.each(
        tasks,
        |((gate_gradient, up_gradient), ((gate, up), gradient))| {
            let targets = gate_gradient.iter_mut().zip(up_gradient);
            let inputs = gate.iter().zip(up).zip(gradient);
            for ((gate_gradient, up_gradient), ((&gate, &up), &gradient)) in targets.zip(inputs) {
                let open = sigmoid(gate);
                let silu = gate * open;
                *gate_gradient = gradient * up * (open + silu * (R::ONE - open));
                *up_gradient = gradient * silu;
            }
        },
    );
}

#[inline(always)]
fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}
