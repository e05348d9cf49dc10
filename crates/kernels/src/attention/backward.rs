//! The backward: probabilities computed again tile by tile, from the kept logarithms of sums.

use super::{Attention, Gradients, Inputs, Kept, TILE, seen, tiles};
use crate::exponentials::exponentials;
use crate::gemm::{Matrix, Product, Target, Write, multiply};
use crate::reduce::dot;
use crate::{Pool, Real};
use pulp::Arch;
use std::ops::Range;

impl Attention<'_> {
    /// Writes the gradients of the inputs of [`forward`](Self::forward) from `output_gradient[tokens, query heads, dim]`.
    ///
    /// # Panics
    /// If lengths do not fit together.
    pub fn backward<R: Real>(
        &self,
        pool: &Pool,
        inputs: Inputs<'_, R>,
        kept: Kept<'_, R>,
        output_gradient: &[R],
        gradients: Gradients<'_, R>,
    ) {
        self.check(inputs);
        let (heads, length) = (self.heads, self.length);
        assert_eq!(kept.output.len(), inputs.queries.len());
        assert_eq!(kept.log_sums.len(), self.log_sums_len());
        assert_eq!(output_gradient.len(), inputs.queries.len());
        assert_eq!(gradients.queries.len(), inputs.queries.len());
        assert_eq!(gradients.keys.len(), inputs.keys.len());
        assert_eq!(gradients.values.len(), inputs.values.len());
        if output_gradient.is_empty() {
            return;
        }
        let first = self.first_seen();
        let mut scratch = [&*gradients.queries, gradients.keys, gradients.values]
            .map(|gradient| vec![R::ZERO; gradient.len()]);
        let [queries, keys, values] = &mut scratch;
        let share = length * heads.dim;
        let pairs = keys.chunks_mut(share).zip(values.chunks_mut(share));
        let tasks = queries.chunks_mut(share * heads.group()).zip(pairs);
        pool.each(
            tasks.enumerate(),
            |(task, (query_gradients, (key_gradient, value_gradient)))| {
                let (sequence, key_head) = (task / heads.keys, task % heads.keys);
                for (index, query_gradient) in query_gradients.chunks_mut(share).enumerate() {
                    let head = key_head * heads.group() + index;
                    let log_sums = (sequence * heads.queries + head) * length;
                    let of_query = |x| self.head(x, heads.queries, sequence, head);
                    let of_key = |x| self.head(x, heads.keys, sequence, key_head);
                    Head {
                        queries: of_query(inputs.queries),
                        keys: of_key(inputs.keys),
                        values: of_key(inputs.values),
                        output: of_query(kept.output),
                        output_gradient: of_query(output_gradient),
                        log_sums: &kept.log_sums[log_sums..log_sums + length],
                        first: &first[sequence * length..(sequence + 1) * length],
                        dim: heads.dim,
                        scale: R::from_f64(self.scale),
                    }
                    .backward(query_gradient, key_gradient, value_gradient);
                }
            },
        );
        self.interleave(pool, heads.queries, &scratch[0], gradients.queries);
        self.interleave(pool, heads.keys, &scratch[1], gradients.keys);
        self.interleave(pool, heads.keys, &scratch[2], gradients.values);
    }
}

/// One query head of one sequence.
struct Head<'a, R> {
    queries: Matrix<'a, R>,
    keys: Matrix<'a, R>,
    values: Matrix<'a, R>,
    output: Matrix<'a, R>,
    output_gradient: Matrix<'a, R>,
    log_sums: &'a [R],
    first: &'a [usize],
    dim: usize,
    scale: R,
}

impl<R: Real> Head<'_, R> {
    /// Adds to all three gradients, `[length, dim]`.
    fn backward(&self, query_gradient: &mut [R], key_gradient: &mut [R], value_gradient: &mut [R]) {
        let mut scores = vec![R::ZERO; TILE * TILE];
        let mut slopes = vec![R::ZERO; TILE * TILE];
        for queries in tiles(0..self.first.len()) {
            let along = self.along(&queries);
            let query_gradient = &mut query_gradient[queries.start * self.dim..];
            let output_gradient = self.output_gradient.rows_from(queries.start);
            let query = self.queries.rows_from(queries.start);
            for keys in tiles(self.first[queries.start]..queries.end) {
                let key = self.keys.rows_from(keys.start);
                let value = self.values.rows_from(keys.start);
                let (rows, columns) = (queries.len(), keys.len());
                let tile = [rows, columns, self.dim];
                product(
                    tile,
                    query,
                    key.transposed(),
                    &mut scores,
                    TILE,
                    Write::Replace,
                );
                product(
                    tile,
                    output_gradient,
                    value.transposed(),
                    &mut slopes,
                    TILE,
                    Write::Replace,
                );
                self.differentiate(&queries, &keys, &along, &mut scores, &mut slopes);
                let probabilities = Matrix::new(&scores, TILE).transposed();
                let slopes = Matrix::new(&slopes, TILE);
                let place = keys.start * self.dim;
                let across = [columns, self.dim, rows];
                product(
                    across,
                    probabilities,
                    output_gradient,
                    &mut value_gradient[place..],
                    self.dim,
                    Write::Add,
                );
                product(
                    across,
                    slopes.transposed(),
                    query,
                    &mut key_gradient[place..],
                    self.dim,
                    Write::Add,
                );
                product(
                    [rows, self.dim, columns],
                    slopes,
                    key,
                    query_gradient,
                    self.dim,
                    Write::Add,
                );
            }
        }
    }

    /// For each query, the product of its output with its gradient: the mean slope of its scores.
    fn along(&self, queries: &Range<usize>) -> [R; TILE] {
        let mut along = [R::ZERO; TILE];
        for (along, query) in along.iter_mut().zip(queries.clone()) {
            *along = dot(
                self.output.row(query, self.dim),
                self.output_gradient.row(query, self.dim),
            );
        }
        along
    }

    /// Replaces scores by probabilities, and the gradients of probabilities by those of scores before they are scaled.
    fn differentiate(
        &self,
        queries: &Range<usize>,
        keys: &Range<usize>,
        along: &[R; TILE],
        scores: &mut [R],
        slopes: &mut [R],
    ) {
        let arch = Arch::new();
        let rows = scores.chunks_mut(TILE).zip(slopes.chunks_mut(TILE));
        for ((query, &along), (scores, slopes)) in queries.clone().zip(along).zip(rows) {
            let (scores, slopes) = (&mut scores[..keys.len()], &mut slopes[..keys.len()]);
            let seen = seen(query, self.first[query], keys);
            for unseen in [0..seen.start, seen.end..keys.len()] {
                scores[unseen.clone()].fill(R::NEGATIVE_INFINITY);
                slopes[unseen].fill(R::ZERO);
            }
            exponentials(arch, scores, self.scale, self.log_sums[query]);
            for (slope, &probability) in slopes.iter_mut().zip(&*scores) {
                *slope = probability * (*slope - along) * self.scale;
            }
        }
    }
}

/// `target[rows, columns] = a[rows, inner] · b[inner, columns]`, or added to it.
fn product<R: Real>(
    [rows, columns, inner]: [usize; 3],
    a: Matrix<'_, R>,
    b: Matrix<'_, R>,
    elements: &mut [R],
    row_stride: usize,
    write: Write,
) {
    let size = Product {
        rows,
        columns,
        inner,
    };
    let target = Target {
        elements,
        row_stride,
        write,
    };
    multiply(size, a, b, target);
}
