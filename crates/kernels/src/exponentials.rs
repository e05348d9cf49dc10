//! Exponentials of slices, compiled for the vectors of the machine that runs them.

use crate::Real;
use crate::reduce::sum;
use pulp::{Arch, Simd, WithSimd};

/// Replaces each `x` by `exp(x · scale - shift)`, and returns the sum of the results.
#[inline]
pub(crate) fn exponentials<R: Real>(arch: Arch, x: &mut [R], scale: R, shift: R) -> R {
    arch.dispatch(Exponentials { x, scale, shift })
}

/// The sum of `exp(x - shift)`, which leaves `x` as it is.
pub(crate) fn sum_of_exponentials<R: Real>(arch: Arch, x: &[R], shift: R) -> R {
    const BLOCK: usize = 256;
    let mut buffer = [R::ZERO; BLOCK];
    let sums = x.chunks(BLOCK).map(|x| {
        let buffer = &mut buffer[..x.len()];
        buffer.copy_from_slice(x);
        exponentials(arch, buffer, R::ONE, shift)
    });
    sums.fold(R::ZERO, |total, sum| total + sum)
}

struct Exponentials<'a, R> {
    x: &'a mut [R],
    scale: R,
    shift: R,
}

impl<R: Real> WithSimd for Exponentials<'_, R> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> R {
        exponentials_here(self.x, self.scale, self.shift)
    }
}

/// The same as a part of a loop that is compiled for vectors already.
#[inline(always)]
pub(crate) fn exponentials_here<R: Real>(x: &mut [R], scale: R, shift: R) -> R {
    for x in x.iter_mut() {
        *x = (*x * scale - shift).exp();
    }
    sum(x, |x| x)
}
