//! The forward: softmax tile by tile, with a running maximum.

use super::{Attention, Inputs, KEYS, QUERIES, seen, tiles};
use crate::exponentials::exponentials_here;
use crate::gemm::{Matrix, Product, Target, Write, multiply};
use crate::reduce::max;
use crate::{Pool, Real};
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

impl Attention<'_> {
    /// Writes `output[tokens, query heads, dim]` and `log_sums`, see [`Kept`](super::Kept).
    ///
    /// # Panics
    /// If lengths do not fit together.
    pub fn forward<R: Real>(
        &self,
        pool: &Pool,
        inputs: Inputs<'_, R>,
        output: &mut [R],
        log_sums: &mut [R],
    ) {
        self.check(inputs);
        assert_eq!(output.len(), inputs.queries.len());
        assert_eq!(log_sums.len(), self.log_sums_len());
        let (heads, length) = (self.heads, self.length);
        if output.is_empty() {
            return;
        }
        let first = self.first_seen();
        let mut scratch = pool.zeros(output.len());
        let share = heads.group() * length;
        let tasks = scratch
            .chunks_mut(share * heads.dim)
            .zip(log_sums.chunks_mut(share));
        pool.each(tasks.enumerate(), |(task, (outputs, log_sums))| {
            let (sequence, key_head) = (task / heads.keys, task % heads.keys);
            let keys = self.turned(self.head(inputs.keys, heads.keys, sequence, key_head));
            let outputs = outputs.chunks_mut(length * heads.dim);
            for (index, (output, log_sums)) in outputs.zip(log_sums.chunks_mut(length)).enumerate()
            {
                let query_head = key_head * heads.group() + index;
                let head = Head {
                    queries: self.head(inputs.queries, heads.queries, sequence, query_head),
                    keys: &keys,
                    values: self.head(inputs.values, heads.keys, sequence, key_head),
                    first: &first[sequence * length..(sequence + 1) * length],
                    dim: heads.dim,
                    scale: R::from_f64(self.scale),
                };
                head.forward(output, log_sums);
            }
        });
        self.interleave(pool, heads.queries, &scratch, output);
    }
}

/// One query head of one sequence.
struct Head<'a, R> {
    queries: Matrix<'a, R>,
    /// `[dim, length]`.
    keys: &'a [R],
    values: Matrix<'a, R>,
    first: &'a [usize],
    dim: usize,
    scale: R,
}

impl<R: Real> Head<'_, R> {
    /// Writes `output[length, dim]` and `log_sums[length]`.
    fn forward(&self, output: &mut [R], log_sums: &mut [R]) {
        let arch = Arch::new();
        let mut scores = vec![R::ZERO; QUERIES * KEYS];
        for queries in tiles(0..self.first.len(), QUERIES) {
            let output = &mut output[queries.start * self.dim..queries.end * self.dim];
            let mut rows = [Row::new(); QUERIES];
            for keys in tiles(self.first[queries.start]..queries.end, KEYS) {
                self.scores(&queries, &keys, &mut scores);
                arch.dispatch(Soften {
                    first: &self.first[queries.clone()],
                    queries: queries.clone(),
                    keys: keys.clone(),
                    scale: self.scale,
                    rows: &mut rows,
                    scores: &mut scores,
                    output,
                });
                self.add_values(&queries, &keys, &scores, output);
            }
            let log_sums = &mut log_sums[queries];
            for ((row, output), log_sum) in
                rows.iter().zip(output.chunks_mut(self.dim)).zip(log_sums)
            {
                let share = R::ONE / row.sum;
                output.iter_mut().for_each(|x| *x *= share);
                *log_sum = row.maximum + row.sum.ln();
            }
        }
    }

    fn scores(&self, queries: &Range<usize>, keys: &Range<usize>, scores: &mut [R]) {
        let size = Product {
            rows: queries.len(),
            columns: keys.len(),
            inner: self.dim,
        };
        let target = Target::new(scores, KEYS, Write::Replace);
        let keys = Matrix::new(&self.keys[keys.start..], self.first.len());
        multiply(size, self.queries.rows_from(queries.start), keys, target);
    }

    fn add_values(
        &self,
        queries: &Range<usize>,
        keys: &Range<usize>,
        scores: &[R],
        output: &mut [R],
    ) {
        let size = Product {
            rows: queries.len(),
            columns: self.dim,
            inner: keys.len(),
        };
        let target = Target::new(output, self.dim, Write::Add);
        multiply(
            size,
            Matrix::new(scores, KEYS),
            self.values.rows_from(keys.start),
            target,
        );
    }
}

/// Turns a tile of scores into exponentials, and makes the output so far fit to them.
struct Soften<'a, R> {
    first: &'a [usize],
    queries: Range<usize>,
    keys: Range<usize>,
    scale: R,
    rows: &'a mut [Row<R>],
    scores: &'a mut [R],
    output: &'a mut [R],
}

impl<R: Real> WithSimd for Soften<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let dim = self.output.len() / self.queries.len();
        let tiles = self
            .scores
            .chunks_mut(KEYS)
            .zip(self.output.chunks_mut(dim));
        let queries = self.queries.zip(self.first);
        for ((row, (query, &first)), (scores, output)) in
            self.rows.iter_mut().zip(queries).zip(tiles)
        {
            let scores = &mut scores[..self.keys.len()];
            let shrink = row.meet(scores, seen(query, first, &self.keys), self.scale);
            if shrink != R::ONE {
                output.iter_mut().for_each(|x| *x *= shrink);
            }
        }
    }
}

/// What is known of a row of scores so far.
#[derive(Clone, Copy)]
struct Row<R> {
    maximum: R,
    /// Of exponentials of scores less the maximum.
    sum: R,
}

impl<R: Real> Row<R> {
    fn new() -> Self {
        Self {
            maximum: R::NEGATIVE_INFINITY,
            sum: R::ZERO,
        }
    }

    /// Replaces the scores that are seen by exponentials less the maximum so far, and the others by zeros. Returns by how much earlier exponentials shrink.
    #[inline(always)]
    fn meet(&mut self, scores: &mut [R], seen: Range<usize>, scale: R) -> R {
        if seen.is_empty() {
            scores.fill(R::ZERO);
            return R::ONE;
        }
        // Whole rows are whole vectors; the exponential of what is not seen is zero.
        scores[..seen.start].fill(R::NEGATIVE_INFINITY);
        scores[seen.end..].fill(R::NEGATIVE_INFINITY);
        let maximum = self.maximum.max(max(scores) * scale);
        let shrink = (self.maximum - maximum).exp();
        self.sum = self.sum * shrink + exponentials_here(scores, scale, maximum);
        self.maximum = maximum;
        shrink
    }
}
