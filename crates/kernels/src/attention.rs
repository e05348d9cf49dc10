//! Causal attention between the tokens of a document, with groups of query heads that share a key head.
//!
//! Scores are computed tile by tile and never held as a whole: memory grows with the length of a sequence, not with its square. The backward
//! computes them again. A task of a thread is all query heads of one key head in one sequence, so that sums over queries have one order.

mod backward;
mod decode;
mod forward;

use crate::gemm::Matrix;
use crate::pool::rows_per_task;
use crate::{Pool, Real};
use std::ops::Range;

/// How many queries a tile of scores has. Few, because those of one tile that see a part of the keys compute scores with all of them.
const QUERIES: usize = 64;
/// How many keys a tile of scores has. Many, because each tile costs each of its rows a maximum, a sum and a factor.
const KEYS: usize = 256;

/// The heads of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// How many query heads there are, a multiple of the key heads.
    pub queries: usize,
    /// How many key heads there are, and as many value heads.
    pub keys: usize,
    /// How many elements a head has.
    pub dim: usize,
}

impl Heads {
    /// How many query heads share a key head.
    fn group(&self) -> usize {
        self.queries / self.keys.max(1)
    }
}

/// Attention over the sequences of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention<'a> {
    /// The heads.
    pub heads: Heads,
    /// How many tokens a sequence has.
    pub length: usize,
    /// The document of each token of all sequences: a run of equal numbers within a sequence. A token sees itself and the tokens before it in its run.
    pub documents: &'a [u32],
    /// The factor of scores, above zero, often 1 / √dim.
    pub scale: f64,
}

/// What attention computes with.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a, R> {
    /// `[tokens, query heads, dim]`.
    pub queries: &'a [R],
    /// `[tokens, key heads, dim]`.
    pub keys: &'a [R],
    /// `[tokens, key heads, dim]`.
    pub values: &'a [R],
}

/// What the forward keeps for the backward, besides its inputs.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a, R> {
    /// The output, `[tokens, query heads, dim]`.
    pub output: &'a [R],
    /// The logarithm of the sum of the exponentials of each row of scores, `[sequences, query heads, length]`.
    pub log_sums: &'a [R],
}

/// The gradients of the inputs.
#[derive(Debug)]
pub struct Gradients<'a, R> {
    /// `[tokens, query heads, dim]`.
    pub queries: &'a mut [R],
    /// `[tokens, key heads, dim]`.
    pub keys: &'a mut [R],
    /// `[tokens, key heads, dim]`.
    pub values: &'a mut [R],
}

impl Attention<'_> {
    /// How many numbers [`Kept::log_sums`] has.
    pub fn log_sums_len(&self) -> usize {
        self.documents.len() * self.heads.queries
    }

    fn check<R>(&self, inputs: Inputs<'_, R>) {
        let Heads { queries, keys, dim } = self.heads;
        let tokens = self.documents.len();
        assert_eq!(queries, self.heads.group() * keys, "groups of heads differ");
        assert_eq!(tokens % self.length.max(1), 0, "sequences differ in length");
        assert_eq!(inputs.queries.len(), tokens * queries * dim);
        assert_eq!(inputs.keys.len(), tokens * keys * dim);
        assert_eq!(inputs.values.len(), tokens * keys * dim);
    }

    /// For each token, the first token of its sequence that it sees.
    fn first_seen(&self) -> Vec<usize> {
        let mut first = vec![0; self.documents.len()];
        let sequences = first.chunks_mut(self.length.max(1));
        for (first, documents) in sequences.zip(self.documents.chunks(self.length.max(1))) {
            for token in 1..first.len() {
                let same = documents[token] == documents[token - 1];
                first[token] = if same { first[token - 1] } else { token };
            }
        }
        first
    }

    /// The rows of one head in one sequence, from `x[tokens, heads, dim]`.
    fn head<'x, R>(&self, x: &'x [R], heads: usize, sequence: usize, head: usize) -> Matrix<'x, R> {
        let stride = heads * self.heads.dim;
        let start = sequence * self.length * stride + head * self.heads.dim;
        Matrix::new(&x[start..], stride)
    }

    /// `[dim, length]` of the rows of one head, so that products with them need not turn each tile anew.
    fn turned<R: Real>(&self, head: Matrix<'_, R>) -> Vec<R> {
        const BLOCK: usize = 16;
        let (dim, length) = (self.heads.dim, self.length);
        let mut turned = vec![R::ZERO; dim * length];
        for tokens in tiles(0..length, BLOCK) {
            let rows: Vec<_> = tokens.clone().map(|token| head.row(token, dim)).collect();
            for element in 0..dim {
                let target = &mut turned[element * length..][tokens.clone()];
                for (target, row) in target.iter_mut().zip(&rows) {
                    *target = row[element];
                }
            }
        }
        turned
    }

    /// Writes `source[sequences, heads, length, dim]` as `target[tokens, heads, dim]`.
    fn interleave<R: Real>(&self, pool: &Pool, heads: usize, source: &[R], target: &mut [R]) {
        let (dim, length) = (self.heads.dim, self.length);
        let width = heads * dim;
        if width == 0 {
            return;
        }
        let rows = rows_per_task(width);
        pool.each(
            target.chunks_mut(rows * width).enumerate(),
            |(task, target)| {
                for (row, token) in target.chunks_mut(width).enumerate() {
                    let (sequence, place) =
                        ((task * rows + row) / length, (task * rows + row) % length);
                    for (head, target) in token.chunks_mut(dim).enumerate() {
                        let start = ((sequence * heads + head) * length + place) * dim;
                        target.copy_from_slice(&source[start..start + dim]);
                    }
                }
            },
        );
    }
}

/// The ranges of at most `len` tokens that make up `range`.
fn tiles(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(len)
        .map(move |start| start..(start + len).min(end))
}

/// The columns of the tile of `keys` that `query` sees, which sees tokens from `first`.
fn seen(query: usize, first: usize, keys: &Range<usize>) -> Range<usize> {
    let end = (query + 1).clamp(keys.start, keys.end) - keys.start;
    let start = first.clamp(keys.start, keys.end) - keys.start;
    start.min(end)..end
}
