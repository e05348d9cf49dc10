//! Random numbers by place.
//!
//! A [`Stream`] is named by a seed and numbers such as purpose, step, sample and layer. The number at each place of a stream depends on the name
//! and the place only, never on what was drawn before, so no layout, thread count or restart changes it.

use crate::pool::BLOCK;
use crate::{Pool, Real};
use cairn_random::{blocks, halves, philox};
use pulp::{Arch, Simd, WithSimd};

/// How many blocks are computed at once.
const LANES: usize = 8;

/// An endless row of random words, four to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    high: [u32; 2],
}

impl Stream {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            key: halves(seed),
            high: [0, 0],
        }
    }

    /// A stream of its own for each `number`.
    #[must_use]
    pub fn with(self, number: u64) -> Self {
        // The counters of this stream's own numbers differ in the upper half.
        let [low, high] = halves(number);
        let [a, b, c, d] = philox(self.key, [low, high, !self.high[0], !self.high[1]]);
        Self {
            key: [a, b],
            high: [c, d],
        }
    }

    /// The words at places `4·index` to `4·index + 3`.
    #[inline(always)]
    pub fn block(self, index: u64) -> [u32; 4] {
        let [low, high] = halves(index);
        philox(self.key, [low, high, self.high[0], self.high[1]])
    }

    /// Writes the numbers at places `first` and on, equally likely in `[0, 1)`, multiples of 2⁻²⁴.
    pub fn fill_uniform<R: Real>(self, pool: &Pool, first: u64, target: &mut [R]) {
        let numbers = |words: [u32; 4]| words.map(uniform).map(R::from_f64);
        self.join(pool, first, target, numbers, |target, number| {
            *target = number
        });
    }

    /// Writes the numbers at places `first` and on, normal around 0 with deviation 1.
    pub fn fill_normal<R: Real>(self, pool: &Pool, first: u64, target: &mut [R]) {
        let numbers = |[a, b, c, d]: [u32; 4]| {
            let ([a, b], [c, d]) = (normal_pair(a, b), normal_pair(c, d));
            [a, b, c, d].map(R::from_f64)
        };
        self.join(pool, first, target, numbers, |target, number| {
            *target = number
        });
    }

    /// Joins each element of `target` with the number at its place, `first` for the first, where `numbers` makes numbers of a block's words.
    pub(crate) fn join<R: Real>(
        self,
        pool: &Pool,
        first: u64,
        target: &mut [R],
        numbers: impl Fn([u32; 4]) -> [R; 4] + Send + Sync,
        join: impl Fn(&mut R, R) + Send + Sync,
    ) {
        let skip = (first % 4) as usize;
        let (head, body) = target.split_at_mut(((4 - skip) % 4).min(target.len()));
        for (target, number) in head.iter_mut().zip(&numbers(self.block(first / 4))[skip..]) {
            join(target, *number);
        }
        let first = first.div_ceil(4);
        pool.each(body.chunks_mut(BLOCK).enumerate(), |(task, target)| {
            Arch::new().dispatch(Join {
                stream: self,
                first: first + (task * BLOCK / 4) as u64,
                target,
                numbers: &numbers,
                join: &join,
            });
        });
    }
}

/// Joins elements with the numbers of whole blocks, from block `first` on.
struct Join<'a, R, N, J> {
    stream: Stream,
    first: u64,
    target: &'a mut [R],
    numbers: &'a N,
    join: &'a J,
}

impl<R: Real, N, J> WithSimd for Join<'_, R, N, J>
where
    N: Fn([u32; 4]) -> [R; 4],
    J: Fn(&mut R, R),
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let firsts = (self.first..).step_by(LANES);
        for (first, target) in firsts.zip(self.target.chunks_mut(4 * LANES)) {
            let words: [[u32; 4]; LANES] = blocks(self.stream.key, first, self.stream.high);
            let mut numbers = [[R::ZERO; 4]; LANES];
            for (numbers, words) in numbers.iter_mut().zip(words) {
                *numbers = (self.numbers)(words);
            }
            for (target, &number) in target.iter_mut().zip(numbers.as_flattened()) {
                (self.join)(target, number);
            }
        }
    }
}

/// A number in `[0, 1)` of the upper 24 bits, which `f32` holds exactly.
#[inline(always)]
fn uniform(word: u32) -> f64 {
    f64::from(word >> 8) / f64::from(1 << 24)
}

/// Two independent normal numbers of two words, by the method of Box and Muller.
fn normal_pair(a: u32, b: u32) -> [f64; 2] {
    // In (0, 1], whose logarithm is finite.
    let radius = (-2.0 * ((f64::from(a) + 1.0) / 2_f64.powi(32)).ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * f64::from(b) / 2_f64.powi(32)).sin_cos();
    [radius * cos, radius * sin]
}
