//! The gate of feed-forward layers: `silu(gate) · up`, where `silu(x) = x / (1 + e^-x)`.

use crate::pool::BLOCK;
use crate::{Pool, Real};
use pulp::{Arch, Simd, WithSimd};

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
        |(output, (gate, up))| Arch::new().dispatch(Forward { gate, up, output }),
    );
}

struct Forward<'a, R> {
    gate: &'a [R],
    up: &'a [R],
    output: &'a mut [R],
}

impl<R: Real> WithSimd for Forward<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for ((output, &gate), &up) in self.output.iter_mut().zip(self.gate).zip(self.up) {
            *output = gate * sigmoid(gate) * up;
        }
    }
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
        |((gate_gradient, up_gradient), ((gate, up), output_gradient))| {
            Arch::new().dispatch(Backward {
                gate,
                up,
                output_gradient,
                gate_gradient,
                up_gradient,
            });
        },
    );
}

struct Backward<'a, R> {
    gate: &'a [R],
    up: &'a [R],
    output_gradient: &'a [R],
    gate_gradient: &'a mut [R],
    up_gradient: &'a mut [R],
}

impl<R: Real> WithSimd for Backward<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let targets = self.gate_gradient.iter_mut().zip(self.up_gradient);
        let inputs = self.gate.iter().zip(self.up).zip(self.output_gradient);
        for ((gate_gradient, up_gradient), ((&gate, &up), &gradient)) in targets.zip(inputs) {
            let open = sigmoid(gate);
            let silu = gate * open;
            *gate_gradient = gradient * up * (open + silu * (R::ONE - open));
            *up_gradient = gradient * silu;
        }
    }
}

#[inline(always)]
fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}
