//! The attention of a decoder layer: projections, norms and turns of heads, and what tokens see of each other.

use super::branch::Inner;
use crate::block::{Keep, Pass};
use crate::parts::{Linear, Norm, Statistics, cut, cut_mut};
use crate::rows::{Place, Share};
use cairn_arena::Parameter;
use cairn_kernels::attention::{self as kernel, Gradients, Heads, Inputs};
use cairn_kernels::gemm::Write;
use cairn_kernels::rotary::Rotary;
use cairn_kernels::{Buffer, Real};

/// Attention in groups of heads; each rank has some groups.
#[derive(Debug)]
pub(crate) struct Attention {
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    /// Of queries and of keys, head by head.
    pub(crate) norms: Option<[Norm; 2]>,
    pub(crate) output: Linear,
    pub(crate) head_dim: usize,
    pub(crate) rotary: Rotary,
}

/// What the backward needs.
pub(crate) struct Kept<R> {
    heads: KeptHeads<R>,
    values: Buffer<R>,
    output: Buffer<R>,
    log_sums: Buffer<R>,
}

/// Queries and keys.
type Pair<T> = [T; 2];

/// What is kept of queries and keys.
enum KeptHeads<R> {
    /// As attention gets them.
    Turned(Turned<R>),
    /// As they were before the norms, to be turned again.
    Raw(Pair<Buffer<R>>),
}

/// Queries and keys as attention gets them.
pub(super) struct Turned<R> {
    pub(super) rows: Pair<Buffer<R>>,
    /// What they were before the norms, and what these found out.
    raw: Option<Pair<(Buffer<R>, Statistics<R>)>>,
}

impl Attention {
    /// This rank's heads.
    pub(super) fn heads(&self, share: Share) -> Heads {
        Heads {
            queries: self.query.local_outputs(share) / self.head_dim,
            keys: self.key.local_outputs(share) / self.head_dim,
            dim: self.head_dim,
        }
    }

    /// Its linear layers.
    pub(super) fn linears(&self) -> [&Linear; 4] {
        [&self.query, &self.key, &self.value, &self.output]
    }

    /// The factor of scores.
    pub(super) fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    /// The lengths of a rank's slices: of queries, keys, values, norms, output.
    pub(super) fn lens(&self, share: Share) -> [usize; 5] {
        let [query, key, value, output] = self.linears().map(|linear| linear.len(share));
        let norms = self.norms.iter().flatten().map(Norm::len).sum();
        [query, key, value, norms, output]
    }

    /// Normalises and turns queries and keys.
    pub(super) fn turn<R: Real>(
        &self,
        place: Place<'_>,
        norms: &[R],
        positions: &[u32],
        rows: Pair<Buffer<R>>,
    ) -> Turned<R> {
        let Place { pool, share, .. } = place;
        let (mut rows, raw) = match &self.norms {
            None => (rows, None),
            Some([query, key]) => {
                let [queries, keys] = rows;
                let [query_norm, key_norm] = cut(norms, [query.len(), key.len()]);
                let (query_rows, query_statistics) = query.forward(pool, query_norm, &queries);
                let (key_rows, key_statistics) = key.forward(pool, key_norm, &keys);
                let raw = [(queries, query_statistics), (keys, key_statistics)];
                ([query_rows, key_rows], Some(raw))
            }
        };
        let heads = self.heads(share);
        let angles = self.rotary.angles(pool, positions);
        angles.rotate(pool, heads.queries, &mut rows[0]);
        angles.rotate(pool, heads.keys, &mut rows[1]);
        Turned { rows, raw }
    }

    /// The gradients of queries and keys before they were normalised and turned, from those after.
    fn turn_back<R: Real>(
        &self,
        pass: &Pass<'_>,
        norms: &[R],
        raw: Option<&Pair<(Buffer<R>, Statistics<R>)>>,
        mut gradient: Pair<Buffer<R>>,
        norm_gradients: &mut [R],
    ) -> Pair<Buffer<R>> {
        let pool = pass.pool;
        let heads = self.heads(pass.share());
        let angles = self.rotary.angles(pool, &pass.batch.positions);
        angles.rotate_back(pool, heads.queries, &mut gradient[0]);
        angles.rotate_back(pool, heads.keys, &mut gradient[1]);
        let (Some([query, key]), Some([queries, keys])) = (&self.norms, raw) else {
            return gradient;
        };
        let lens = [query.len(), key.len()];
        let weights = cut(norms, lens);
        let [query_gradients, key_gradients] = cut_mut(norm_gradients, lens);
        [
            query.backward(
                pool,
                weights[0],
                (&queries.0, &queries.1),
                &gradient[0],
                query_gradients,
            ),
            key.backward(
                pool,
                weights[1],
                (&keys.0, &keys.1),
                &gradient[1],
                key_gradients,
            ),
        ]
    }

    fn kernel<'a>(&self, pass: &Pass<'a>) -> kernel::Attention<'a> {
        kernel::Attention {
            heads: self.heads(pass.share()),
            length: pass.batch.length,
            documents: &pass.batch.documents,
            scale: self.scale(),
        }
    }
}

impl Inner for Attention {
    type Kept<R: Real> = Kept<R>;

    fn parameters(&self) -> Vec<Parameter> {
        let projections = [&self.query, &self.key, &self.value];
        let mut parameters: Vec<Parameter> = projections
            .into_iter()
            .flat_map(Linear::parameters)
            .collect();
        parameters.extend(self.norms.iter().flatten().flat_map(Norm::parameters));
        parameters.extend(self.output.parameters());
        parameters
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
        let place = pass.place();
        let [query, key, value, norms, output] = cut(weights, self.lens(place.share));
        let raw = [
            self.query.forward(place, query, rows),
            self.key.forward(place, key, rows),
        ];
        let values = self.value.forward(place, value, rows);
        let turned = self.turn(place, norms, &pass.batch.positions, raw);
        let inputs = inputs(&turned.rows, &values);
        let attention = self.kernel(pass);
        let mut attended = pass.pool.buffer(inputs.queries.len());
        let mut log_sums = pass.pool.buffer(attention.log_sums_len());
        attention.forward(pass.pool, inputs, &mut attended, &mut log_sums);
        let result = self.output.forward(place, output, &attended);
        let heads = match turned.raw {
            Some(raw) if keep == Keep::Selected => KeptHeads::Raw(raw.map(|(rows, _)| rows)),
            raw => KeptHeads::Turned(Turned { raw, ..turned }),
        };
        let kept = Kept {
            heads,
            values,
            output: attended,
            log_sums,
        };
        (result, kept)
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
        let [query, key, value, norms, output] = cut(weights, lens);
        let [
            query_gradients,
            key_gradients,
            value_gradients,
            norm_gradients,
            output_gradients,
        ] = cut_mut(gradients, lens);
        let turned = match kept.heads {
            KeptHeads::Turned(turned) => turned,
            KeptHeads::Raw(rows) => self.turn(place, norms, &pass.batch.positions, rows),
        };
        self.output
            .add_gradients(place, &kept.output, output_gradient, output_gradients);
        let mut attended_gradient = pass.pool.buffer(kept.output.len());
        self.output.input_gradient(
            place,
            output,
            output_gradient,
            Write::Replace,
            &mut attended_gradient,
        );

        let lens = [&turned.rows[0], &turned.rows[1], &kept.values].map(|rows| rows.len());
        let [mut queries, mut keys, mut values] = lens.map(|len| pass.pool.buffer(len));
        let found = kernel::Kept {
            output: &kept.output,
            log_sums: &kept.log_sums,
        };
        let targets = Gradients {
            queries: &mut queries,
            keys: &mut keys,
            values: &mut values,
        };
        let inputs = inputs(&turned.rows, &kept.values);
        self.kernel(pass)
            .backward(pass.pool, inputs, found, &attended_gradient, targets);
        let [queries, keys] = self.turn_back(
            pass,
            norms,
            turned.raw.as_ref(),
            [queries, keys],
            norm_gradients,
        );

        self.query
            .add_gradients(place, rows, &queries, query_gradients);
        self.key.add_gradients(place, rows, &keys, key_gradients);
        self.value
            .add_gradients(place, rows, &values, value_gradients);
        let mut rows_gradient = pass.pool.buffer(rows.len());
        self.query
            .input_gradient(place, query, &queries, Write::Replace, &mut rows_gradient);
        self.key
            .input_gradient(place, key, &keys, Write::Add, &mut rows_gradient);
        self.value
            .input_gradient(place, value, &values, Write::Add, &mut rows_gradient);
        rows_gradient
    }
}

fn inputs<'a, R>([queries, keys]: &'a Pair<Buffer<R>>, values: &'a [R]) -> Inputs<'a, R> {
    Inputs {
        queries,
        keys,
        values,
    }
}
