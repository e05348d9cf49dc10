//! The backward: probabilities computed again tile by tile, from the kept logarithms of sums.

use super::{Attention, Gradients, Inputs, KEYS, Kept, QUERIES, seen, tiles};
use crate::exponentials::exponentials_here;
use crate::gemm::{Matrix, Product, Target, Write, multiply};
use crate::reduce::dot;
use crate::{Pool, Real};
use pulp::{Arch, Simd, WithSimd};
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
            .map(|gradient| pool.zeros(gradient.len()));
        let [queries, keys, values] = &mut scratch;
        let share = length * heads.dim;
        let pairs = keys.chunks_mut(share).zip(values.chunks_mut(share));
        let tasks = queries.chunks_mut(share * heads.group()).zip(pairs);
        pool.each(
            tasks.enumerate(),
            |(task, (query_gradients, (key_gradient, value_gradient)))| {
                let (sequence, key_head) = (task / heads.keys, task % heads.keys);
                let of_key = |x| self.head(x, heads.keys, sequence, key_head);
                let turned = [inputs.keys, inputs.values].map(|x| self.turned(of_key(x)));
                for (index, query_gradient) in query_gradients.chunks_mut(share).enumerate() {
                    let head = key_head * heads.group() + index;
                    let log_sums = (sequence * heads.queries + head) * length;
                    let of_query = |x| self.head(x, heads.queries, sequence, head);
                    Head {
                        queries: of_query(inputs.queries),
                        keys: of_key(inputs.keys),
                        turned: turned.each_ref().map(|x| Matrix::new(x, length)),
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
    /// Keys and values as `[dim, length]`.
    turned: [Matrix<'a, R>; 2],
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
        let arch = Arch::new();
        let mut scores = vec![R::ZERO; QUERIES * KEYS];
        let mut slopes = vec![R::ZERO; QUERIES * KEYS];
        for queries in tiles(0..self.first.len(), QUERIES) {
            let along = self.along(&queries);
            let query_gradient = &mut query_gradient[queries.start * self.dim..];
            let output_gradient = self.output_gradient.rows_from(queries.start);
            let query = self.queries.rows_from(queries.start);
            for keys in tiles(self.first[queries.start]..queries.end, KEYS) {
                let key = self.keys.rows_from(keys.start);
                let [turned_key, turned_value] = self.turned.map(|x| x.columns_from(keys.start));
                let (rows, columns) = (queries.len(), keys.len());
                let tile = [rows, columns, self.dim];
                let target = Target::new(&mut scores, KEYS, Write::Replace);
                product(tile, query, turned_key, target);
                let target = Target::new(&mut slopes, KEYS, Write::Replace);
                product(tile, output_gradient, turned_value, target);
                arch.dispatch(Differentiate {
                    first: &self.first[queries.clone()],
                    log_sums: &self.log_sums[queries.clone()],
                    along: &along,
                    queries: queries.clone(),
                    keys: keys.clone(),
                    scale: self.scale,
                    scores: &mut scores,
                    slopes: &mut slopes,
                });
                let probabilities = Matrix::new(&scores, KEYS).transposed();
                let slopes = Matrix::new(&slopes, KEYS);
                let place = keys.start * self.dim;
                let across = [columns, self.dim, rows];
                let target = Target::new(&mut value_gradient[place..], self.dim, Write::Add);
                product(across, probabilities, output_gradient, target);
                let target = Target::new(&mut key_gradient[place..], self.dim, Write::Add);
                product(across, slopes.transposed(), query, target);
                let target = Target::new(query_gradient, self.dim, Write::Add);
                product([rows, self.dim, columns], slopes, key, target);
            }
        }
    }

    /// For each query, the product of its output with its gradient: the mean slope of its scores.
    fn along(&self, queries: &Range<usize>) -> [R; QUERIES] {
        let mut along = [R::ZERO; QUERIES];
        for (along, query) in along.iter_mut().zip(queries.clone()) {
            *along = dot(
                self.output.row(query, self.dim),
                self.output_gradient.row(query, self.dim),
            );
        }
        along
    }
}

/// Replaces a tile of scores by probabilities, and the gradients of probabilities by those of scores before they are scaled.
struct Differentiate<'a, R> {
    first: &'a [usize],
    log_sums: &'a [R],
    along: &'a [R],
    queries: Range<usize>,
    keys: Range<usize>,
    scale: R,
    scores: &'a mut [R],
    slopes: &'a mut [R],
}

impl<R: Real> WithSimd for Differentiate<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let rows = self
            .scores
            .chunks_mut(KEYS)
            .zip(self.slopes.chunks_mut(KEYS));
        let columns = self.keys.len();
        for ((row, query), (scores, slopes)) in self.queries.enumerate().zip(rows) {
            let (scores, slopes) = (&mut scores[..columns], &mut slopes[..columns]);
            let seen = seen(query, self.first[row], &self.keys);
            // Whole rows are whole vectors; the exponential of what is not seen is zero.
            for unseen in [0..seen.start, seen.end..columns] {
                scores[unseen.clone()].fill(R::NEGATIVE_INFINITY);
                slopes[unseen].fill(R::ZERO);
            }
            exponentials_here(scores, self.scale, self.log_sums[row]);
            for (slope, &probability) in slopes.iter_mut().zip(&*scores) {
                *slope = probability * (*slope - self.along[row]) * self.scale;
            }
        }
    }
}

/// `target[rows, columns] = a[rows, inner] · b[inner, columns]`, or added to it.
fn product<R: Real>(
    [rows, columns, inner]: [usize; 3],
    a: Matrix<'_, R>,
    b: Matrix<'_, R>,
    target: Target<'_, R>,
) {
    let size = Product {
        rows,
        columns,
        inner,
    };
    multiply(size, a, b, target);
}
