//! Sums and maxima of slices, in lanes that the compiler turns into vectors.

use crate::Real;

const LANES: usize = 16;

/// The sum of what `term` gives for each element, in an order that depends on the length only; it should be small, to become a part of the loop.
#[inline(always)]
pub(crate) fn sum<R: Real>(x: &[R], term: impl Fn(R) -> R) -> R {
    let mut lanes = [R::ZERO; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += term(chunk[lane]);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += term(x);
    }
    fold(lanes, |a, b| a + b)
}

/// The sum of what `term` gives for each pair of elements of two slices.
#[inline(always)]
pub(crate) fn sum_pairs<R: Real>(x: &[R], y: &[R], term: impl Fn(R, R) -> R) -> R {
    let mut lanes = [R::ZERO; LANES];
    let (x_chunks, x_rest) = x.as_chunks::<LANES>();
    let (y_chunks, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in x_chunks.iter().zip(y_chunks) {
        for lane in 0..LANES {
            lanes[lane] += term(x[lane], y[lane]);
        }
    }
    for (lane, (&x, &y)) in lanes.iter_mut().zip(x_rest.iter().zip(y_rest)) {
        *lane += term(x, y);
    }
    fold(lanes, |a, b| a + b)
}

/// The sum of the products of the elements of two slices.
#[inline(always)]
pub(crate) fn dot<R: Real>(x: &[R], y: &[R]) -> R {
    sum_pairs(x, y, |x, y| x * y)
}

/// The greatest element that is a number, or negative infinity.
#[inline(always)]
pub(crate) fn max<R: Real>(x: &[R]) -> R {
    let greater = |a: R, b: R| if b > a { b } else { a };
    let mut lanes = [R::NEGATIVE_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = greater(lanes[lane], chunk[lane]);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = greater(*lane, x);
    }
    fold(lanes, greater)
}

#[inline(always)]
fn fold<R: Real>(mut lanes: [R; LANES], join: impl Fn(R, R) -> R) -> R {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = join(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_counts_once_at_every_length() {
        for len in 0..70_u16 {
            let x: Vec<f64> = (1..=len).map(f64::from).collect();
            let len = f64::from(len);
            assert_eq!(sum(&x, |x| x), len * (len + 1.0) / 2.0);
            assert_eq!(dot(&x, &x), len * (len + 1.0) * (2.0 * len + 1.0) / 6.0);
            assert_eq!(max(&x), x.last().copied().unwrap_or(f64::NEG_INFINITY));
        }
    }
}
