//! Rotary embeddings: pairs of elements of each head turned by an angle that grows with the place of the token.

use crate::pool::rows_per_task;
use crate::{Pool, Real};

/// How the angles of a model are changed for sequences longer than it first learned.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Scaling {
    /// Not at all.
    #[default]
    None,
    /// All angles are divided by `factor`.
    Linear {
        /// How many times longer sequences are.
        factor: f64,
    },
    /// Slow turns are divided by `factor`, fast ones stay, and those between change over, as Llama 3.1 does.
    Llama3 {
        /// How many times longer sequences are.
        factor: f64,
        /// Turns that fit less often than this into the first length are slow.
        low_frequency_factor: f64,
        /// Turns that fit more often than this into the first length are fast.
        high_frequency_factor: f64,
        /// The length that the model first learned.
        original_length: f64,
    },
}

impl Scaling {
    fn apply(self, inverse: f64) -> f64 {
        match self {
            Self::None => inverse,
            Self::Linear { factor } => inverse / factor,
            Self::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_length,
            } => {
                let turns = original_length * inverse / std::f64::consts::TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - kept) * inverse / factor + kept * inverse
            }
        }
    }
}

/// The speeds at which the pairs of a head turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    frequencies: Vec<f32>,
}

impl Rotary {
    /// For heads of `head_dim` elements: pair `i` turns by `theta^(-2i / head_dim)` per token, then scaled.
    pub fn new(head_dim: usize, theta: f64, scaling: Scaling) -> Self {
        let frequency = |pair: usize| {
            let inverse = theta.powf(-((2 * pair) as f64) / head_dim as f64);
            f32::from_f64(scaling.apply(inverse))
        };
        Self {
            frequencies: (0..head_dim / 2).map(frequency).collect(),
        }
    }

    /// By how much each pair turns per token.
    pub fn frequencies(&self) -> &[f32] {
        &self.frequencies
    }

    /// The angles of tokens at `positions` in their documents. Products are rounded to `f32`, as models learned them.
    pub fn angles<R: Real>(&self, pool: &Pool, positions: &[u32]) -> Angles<R> {
        let pairs = self.frequencies.len();
        let (distinct, rows_of) = distinct(positions);
        let mut cosines = vec![R::ZERO; distinct.len() * pairs];
        let mut sines = cosines.clone();
        let rows = rows_per_task(64 * pairs);
        let share = (rows * pairs).max(1);
        let tasks = cosines.chunks_mut(share).zip(sines.chunks_mut(share));
        pool.each(
            tasks.zip(distinct.chunks(rows)),
            |((cosines, sines), positions)| {
                let rows = cosines.chunks_mut(pairs).zip(sines.chunks_mut(pairs));
                for ((cosines, sines), &position) in rows.zip(positions) {
                    let position = f32::from_f64(position.into());
                    let targets = cosines.iter_mut().zip(sines);
                    for ((cosine, sine), &frequency) in targets.zip(&self.frequencies) {
                        let (sin, cos) = f64::from(position * frequency).sin_cos();
                        (*cosine, *sine) = (R::from_f64(cos), R::from_f64(sin));
                    }
                }
            },
        );
        Angles {
            cosines,
            sines,
            rows: rows_of,
            pairs,
        }
    }
}

/// The positions that occur, and for each token the number of its own among them: those of all sequences are often the same.
fn distinct(positions: &[u32]) -> (Vec<u32>, Vec<usize>) {
    let mut distinct = positions.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let place = |position: &u32| distinct.partition_point(|other| other < position);
    let rows = positions.iter().map(place).collect();
    (distinct, rows)
}

/// Cosine and sine of each pair of each token.
#[derive(Debug, Clone, PartialEq)]
pub struct Angles<R> {
    /// `[positions, pairs]`.
    cosines: Vec<R>,
    /// `[positions, pairs]`.
    sines: Vec<R>,
    /// For each token, the row of its position.
    rows: Vec<usize>,
    pairs: usize,
}

impl<R: Real> Angles<R> {
    /// Turns `x[tokens, heads, head_dim]` in place; element `i` of a head is paired with element `i + head_dim / 2`.
    ///
    /// # Panics
    /// If `x` has other tokens.
    pub fn rotate(&self, pool: &Pool, heads: usize, x: &mut [R]) {
        self.turn(pool, heads, x, R::ONE);
    }

    /// Turns `x` back: the inverse of [`rotate`](Self::rotate), and its backward.
    ///
    /// # Panics
    /// If `x` has other tokens.
    pub fn rotate_back(&self, pool: &Pool, heads: usize, x: &mut [R]) {
        self.turn(pool, heads, x, -R::ONE);
    }

    fn turn(&self, pool: &Pool, heads: usize, x: &mut [R], direction: R) {
        let pairs = self.pairs;
        if pairs == 0 || heads == 0 {
            return;
        }
        let width = heads * 2 * pairs;
        assert_eq!(x.len(), self.rows.len() * width);
        let rows = rows_per_task(width);
        let tasks = x.chunks_mut(rows * width).zip(self.rows.chunks(rows));
        pool.each(tasks, |(x, rows)| {
            for (token, row) in x.chunks_mut(width).zip(rows) {
                let row = row * pairs..(row + 1) * pairs;
                let (cosines, sines) = (&self.cosines[row.clone()], &self.sines[row]);
                for head in token.chunks_mut(2 * pairs) {
                    turn_head(head, cosines, sines, direction);
                }
            }
        });
    }
}

#[inline(always)]
fn turn_head<R: Real>(head: &mut [R], cosines: &[R], sines: &[R], direction: R) {
    let (first, second) = head.split_at_mut(cosines.len());
    let pairs = first.iter_mut().zip(second);
    for ((a, b), (&cos, &sin)) in pairs.zip(cosines.iter().zip(sines)) {
        let sin = sin * direction;
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}
