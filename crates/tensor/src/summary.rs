//! What the values of a tensor are like, from one look at each.

#[cfg(test)]
mod tests;

use crate::blocks::{self, BLOCK, block_bytes};
use crate::{DType, Error};

/// Sums go through so many accumulators at once, always in the same order.
const LANES: usize = 8;

/// Counts and moments of elements.
///
/// NaN and infinities are counted; all else is about the finite elements. Arithmetic is in `f64` and in an order that depends
/// on the elements alone, so that parts worked out by any number of threads and appended in order give the same bits. 64-bit
/// integers are rounded to `f64`; both parts of a complex element count.
///
/// ```
/// use cairn_tensor::{DType, Summary};
///
/// let mut summary = Summary::of(DType::I8, &[1, 2, 3])?;
/// summary.append(&Summary::of(DType::I8, &[6])?);
/// assert_eq!((summary.mean(), summary.max()), (Some(3.0), Some(6.0)));
/// # Ok::<(), cairn_tensor::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summary {
    /// Elements, of any value.
    pub elements: u64,
    /// Those that are NaN.
    pub nan: u64,
    /// Those that are infinite.
    pub infinite: u64,
    /// Those that are zero, of either sign.
    pub zeros: u64,
    finite: Moments,
}

/// The moments of finite values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Moments {
    count: u64,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
    min: f64,
    max: f64,
}

impl Summary {
    /// What the elements in `bytes` are like.
    ///
    /// # Errors
    /// If the last element is cut.
    pub fn of(dtype: DType, bytes: &[u8]) -> Result<Self, Error> {
        let dtype = real(dtype);
        let len = bytes.len();
        dtype
            .elements_in(len)
            .ok_or(Error::PartialElement { dtype, len })?;
        let mut summary = Self::default();
        let mut values = [0.0; BLOCK];
        for source in bytes.chunks(block_bytes(dtype)) {
            let values = &mut values[..source.len() * 8 / dtype.bits()];
            blocks::to_f64(dtype, source, values);
            summary.append(&Self::of_block(values));
        }
        Ok(summary)
    }

    fn of_block(values: &mut [f64]) -> Self {
        let mut summary = Self {
            elements: values.len() as u64,
            ..Self::default()
        };
        let mut finite = values.len();
        // Zero times anything finite is zero: one addition an element tells whether there is more to look at.
        if lanes(values, |value| value * 0.0) != 0.0 {
            summary.nan = count(values, f64::is_nan);
            summary.infinite = count(values, f64::is_infinite);
            finite = 0;
            for index in 0..values.len() {
                if values[index].is_finite() {
                    values[finite] = values[index];
                    finite += 1;
                }
            }
        }
        let values = &values[..finite];
        summary.zeros = count(values, |value| value == 0.0);
        summary.finite = Moments::of(values);
        summary
    }

    /// Adds the elements that follow.
    pub fn append(&mut self, next: &Self) {
        self.elements += next.elements;
        self.nan += next.nan;
        self.infinite += next.infinite;
        self.zeros += next.zeros;
        self.finite.append(&next.finite);
    }

    /// The mean of the finite elements, if there are any.
    pub fn mean(&self) -> Option<f64> {
        self.finite.known(self.finite.mean)
    }

    /// The standard deviation of the finite elements from their mean: √(Σ(x − mean)² / n).
    pub fn std(&self) -> Option<f64> {
        let variance = self.finite.squares / self.finite.count as f64;
        self.finite.known(variance.sqrt())
    }

    /// The least finite element.
    pub fn min(&self) -> Option<f64> {
        self.finite.known(self.finite.min)
    }

    /// The greatest finite element.
    pub fn max(&self) -> Option<f64> {
        self.finite.known(self.finite.max)
    }

    /// The greatest distance of a finite element from zero.
    pub fn absmax(&self) -> Option<f64> {
        let absmax = self.finite.min.abs().max(self.finite.max.abs());
        self.finite.known(absmax)
    }

    /// The share of elements that are zero; `None` if there are no elements.
    pub fn sparsity(&self) -> Option<f64> {
        (self.elements > 0).then(|| self.zeros as f64 / self.elements as f64)
    }
}

impl Moments {
    fn of(values: &[f64]) -> Self {
        let Some(&first) = values.first() else {
            return Self::default();
        };
        let count = values.len() as f64;
        let mut mean = lanes(values, |value| value) / count;
        if mean.is_infinite() {
            mean = lanes(values, |value| value / count);
        }
        Self {
            count: values.len() as u64,
            mean,
            squares: lanes(values, |value| (value - mean) * (value - mean)),
            min: values.iter().copied().fold(first, f64::min),
            max: values.iter().copied().fold(first, f64::max),
        }
    }

    /// Adds the moments of other values (Chan, Golub and LeVeque, 1983).
    fn append(&mut self, next: &Self) {
        if next.count == 0 || self.count == 0 {
            if self.count == 0 {
                *self = *next;
            }
            return;
        }
        let count = self.count + next.count;
        let share = next.count as f64 / count as f64;
        let distance = next.mean - self.mean;
        self.squares += next.squares + distance * distance * (self.count as f64 * share);
        self.mean = match distance.is_finite() {
            true => self.mean + distance * share,
            false => self.mean * (1.0 - share) + next.mean * share,
        };
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
        self.count = count;
    }

    fn known(&self, value: f64) -> Option<f64> {
        (self.count > 0).then_some(value)
    }
}

/// The type whose elements are counted: a complex element is two real ones.
pub(crate) fn real(dtype: DType) -> DType {
    match dtype {
        DType::C64 => DType::F32,
        dtype => dtype,
    }
}

/// The sum of `of` over all values.
#[inline(always)]
fn lanes(values: &[f64], of: impl Fn(f64) -> f64) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum += of(value);
        }
    }
    for (sum, &value) in sums.iter_mut().zip(rest) {
        *sum += of(value);
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

fn count(values: &[f64], wanted: impl Fn(f64) -> bool) -> u64 {
    values.iter().map(|&value| u64::from(wanted(value))).sum()
}
