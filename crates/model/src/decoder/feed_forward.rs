//! The feed-forward part of a decoder layer: `down(silu(gate(x)) · up(x))`.

use super::branch::Inner;
use crate::block::{Keep, Pass};
use crate::parts::{Linear, cut, cut_mut};
use crate::rows::{Place, Share};
use cairn_arena::Parameter;
use cairn_kernels::gemm::Write;
use cairn_kernels::{Buffer, Pool, Real, swiglu};

/// The feed-forward part: gate and up give each rank some columns, down sums over them.
#[derive(Debug)]
pub(crate) struct FeedForward {
    pub(crate) gate: Linear,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

/// What the backward needs.
pub(crate) struct Kept<R> {
    gate: Buffer<R>,
    up: Buffer<R>,
    inner: Option<Buffer<R>>,
}

impl FeedForward {
    /// Its linear layers.
    pub(super) fn linears(&self) -> [&Linear; 3] {
        [&self.gate, &self.up, &self.down]
    }

    /// This rank's term of the output.
    pub(super) fn apply<R: Real>(
        &self,
        place: Place<'_>,
        weights: &[R],
        rows: &[R],
        keep: Keep,
    ) -> (Buffer<R>, Kept<R>) {
        let [_, _, down] = cut(weights, self.lens(place.share));
        let mut kept = self.gates(place, weights, rows);
        let inner = activated(place.pool, &kept.gate, &kept.up);
        let output = self.down.forward(place, down, &inner);
        kept.inner = (keep == Keep::Everything).then_some(inner);
        (output, kept)
    }

    /// The two products before the activation.
    fn gates<R: Real>(&self, place: Place<'_>, weights: &[R], rows: &[R]) -> Kept<R> {
        let [gate, up, _] = cut(weights, self.lens(place.share));
        Kept {
            gate: self.gate.forward(place, gate, rows),
            up: self.up.forward(place, up, rows),
            inner: None,
        }
    }

    fn lens(&self, share: Share) -> [usize; 3] {
        self.linears().map(|linear| linear.len(share))
    }
}

impl Inner for FeedForward {
    type Kept<R: Real> = Kept<R>;

    fn parameters(&self) -> Vec<Parameter> {
        self.linears()
            .into_iter()
            .flat_map(Linear::parameters)
            .collect()
    }

    fn len(&self, share: Share) -> usize {
        self.lens(share).iter().sum()
    }

    fn forward<R: Real>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        rows: &[R],
        keep: Keep,
    ) -> (Buffer<R>, Kept<R>) {
        self.apply(pass.place(), weights, rows, keep)
    }

    fn again<R: Real>(&self, pass: &Pass<'_>, weights: &[R], rows: &[R]) -> Kept<R> {
        self.gates(pass.place(), weights, rows)
    }

    fn backward<R: Real>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        rows: &[R],
        kept: Kept<R>,
        output_gradient: &[R],
        gradients: &mut [R],
    ) -> Buffer<R> {
        let place = pass.place();
        let lens = self.lens(place.share);
        let [gate, up, down] = cut(weights, lens);
        let [gate_gradients, up_gradients, down_gradients] = cut_mut(gradients, lens);
        let inner = kept
            .inner
            .unwrap_or_else(|| activated(pass.pool, &kept.gate, &kept.up));
        self.down
            .add_gradients(place, &inner, output_gradient, down_gradients);
        let mut inner_gradient = inner;
        self.down.input_gradient(
            place,
            down,
            output_gradient,
            Write::Replace,
            &mut inner_gradient,
        );

        let [mut gate_gradient, mut up_gradient] =
            [(); 2].map(|()| pass.pool.buffer(inner_gradient.len()));
        swiglu::backward(
            pass.pool,
            &kept.gate,
            &kept.up,
            &inner_gradient,
            &mut gate_gradient,
            &mut up_gradient,
        );
        self.gate
            .add_gradients(place, rows, &gate_gradient, gate_gradients);
        self.up
            .add_gradients(place, rows, &up_gradient, up_gradients);

        let mut rows_gradient = pass.pool.buffer(rows.len());
        self.gate.input_gradient(
            place,
            gate,
            &gate_gradient,
            Write::Replace,
            &mut rows_gradient,
        );
        self.up
            .input_gradient(place, up, &up_gradient, Write::Add, &mut rows_gradient);
        rows_gradient
    }
}

fn activated<R: Real>(pool: &Pool, gate: &[R], up: &[R]) -> Buffer<R> {
    let mut inner = pool.buffer(gate.len());
    swiglu::forward(pool, gate, up, &mut inner);
    inner
}
