//! Arithmetic element by element: sums, multiples, changes of type, and what is counted over all elements.

use crate::pool::BLOCK;
use crate::{Pool, Real, reduce};

/// `y += x`.
///
/// # Panics
/// If the slices differ in length.
pub fn add<R: Real>(pool: &Pool, x: &[R], y: &mut [R]) {
    zip(pool, x, y, |x, y| *y += x);
}

/// `y *= x`.
///
/// # Panics
/// If the slices differ in length.
pub fn multiply<R: Real>(pool: &Pool, x: &[R], y: &mut [R]) {
    zip(pool, x, y, |x, y| *y *= x);
}

/// `y += factor · x`.
///
/// # Panics
/// If the slices differ in length.
pub fn axpy<R: Real>(pool: &Pool, factor: R, x: &[R], y: &mut [R]) {
    zip(pool, x, y, |x, y| *y += factor * x);
}

/// `y *= factor`.
pub fn scale<R: Real>(pool: &Pool, factor: R, y: &mut [R]) {
    pool.each(y.chunks_mut(BLOCK), |y| {
        for y in y {
            *y *= factor;
        }
    });
}

/// `y = 0`.
pub fn zero<R: Real>(pool: &Pool, y: &mut [R]) {
    pool.each(y.chunks_mut(BLOCK), |y| y.fill(R::ZERO));
}

/// `y = x`, where `x` holds the bits of `bf16`s.
///
/// # Panics
/// If the slices differ in length.
pub fn widen(pool: &Pool, x: &[u16], y: &mut [f32]) {
    zip(pool, x, y, |x, y| *y = f32::from_bits(u32::from(x) << 16));
}

/// `y = x`, rounded to the bits of the nearest `bf16`s, ties to even; NaN stays NaN.
///
/// # Panics
/// If the slices differ in length.
pub fn narrow(pool: &Pool, x: &[f32], y: &mut [u16]) {
    zip(pool, x, y, |x, y| *y = to_bf16(x));
}

/// The bits of the nearest `bf16`.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the upper half is shifted down"
)]
pub(crate) fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7FFF + even) >> 16;
    // A NaN keeps its sign and its upper bits, and stays quiet.
    let nan = (bits >> 16) | 0x40;
    (if x.is_nan() { nan } else { rounded }) as u16
}

/// The sum of all elements, in `f64`.
pub fn sum<R: Real>(pool: &Pool, x: &[R]) -> f64 {
    total(pool, x, |x| x)
}

/// The sum of the squares of all elements, in `f64`.
pub fn sum_of_squares<R: Real>(pool: &Pool, x: &[R]) -> f64 {
    total(pool, x, |x| x * x)
}

/// Whether no element is infinite or NaN.
pub fn all_finite<R: Real>(pool: &Pool, x: &[R]) -> bool {
    // Zero times a number is zero; times infinity or NaN it is NaN, and so are all sums with it.
    let finite = |x: &[R]| reduce::sum(x, |x| x * R::ZERO) == R::ZERO;
    pool.map(x.chunks(BLOCK), finite)
        .into_iter()
        .all(|finite| finite)
}

/// Sums of fixed blocks, added in their order.
fn total<R: Real>(pool: &Pool, x: &[R], term: impl Fn(f64) -> f64 + Send + Sync) -> f64 {
    const LANES: usize = 8;
    let sums = pool.map(x.chunks(BLOCK), |x| {
        let mut lanes = [0.0; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                lanes[lane] += term(chunk[lane].to_f64());
            }
        }
        let rest = rest.iter().map(|x| term(x.to_f64()));
        lanes.into_iter().chain(rest).sum::<f64>()
    });
    sums.iter().sum()
}

fn zip<T: Copy + Sync, U: Send>(
    pool: &Pool,
    x: &[T],
    y: &mut [U],
    join: impl Fn(T, &mut U) + Send + Sync,
) {
    assert_eq!(x.len(), y.len());
    pool.each(y.chunks_mut(BLOCK).zip(x.chunks(BLOCK)), |(y, x)| {
        for (y, &x) in y.iter_mut().zip(x) {
            join(x, y);
        }
    });
}
