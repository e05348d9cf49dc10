//! Element-wise reductions of one buffer into another.

mod combine;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use crate::blocks::{self, BLOCK, Rounding, block_bytes};
use crate::{DType, Error, Overflow};
use combine::combine;

/// How contributions are combined, element by element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Their sum.
    Sum,
    /// Their mean: summed by [`reduce_into`], divided by [`finish_average`].
    Avg,
    /// The largest; NaN if there is one.
    Max,
    /// The smallest; NaN if there is one.
    Min,
    /// Their product.
    Prod,
    /// Whether one of them is true.
    Any,
    /// Whether all of them are true.
    All,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: [ReduceOp; 7] = [
        ReduceOp::Sum,
        ReduceOp::Avg,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Prod,
        ReduceOp::Any,
        ReduceOp::All,
    ];

    /// The name people read and write, for example `sum`.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Avg => "avg",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Prod => "prod",
            ReduceOp::Any => "any",
            ReduceOp::All => "all",
        }
    }

    /// Whether elements of this type can be reduced so: truth values are not added, numbers have no
    /// truth, complex numbers no order.
    pub const fn applies_to(self, dtype: DType) -> bool {
        match self {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Prod => !matches!(dtype, DType::Bool),
            ReduceOp::Max | ReduceOp::Min => !matches!(dtype, DType::C64),
            ReduceOp::Any | ReduceOp::All => matches!(dtype, DType::Bool),
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = Error;

    fn from_str(text: &str) -> Result<ReduceOp, Error> {
        ReduceOp::ALL
            .into_iter()
            .find(|op| op.name() == text)
            .ok_or_else(|| Error::UnknownReduceOp {
                name: text.to_owned(),
            })
    }
}

/// Combines every element of `source` into the element of `accumulator` at the same place.
///
/// Floats of at most 16 bits are combined in `f32` and rounded to the nearest each time; integers
/// wrap around. Which of `-0` and `0` is larger is not specified.
///
/// # Errors
///
/// If the reduction does not apply to the type or the buffers do not hold the same whole number of
/// elements.
pub fn reduce_into(
    op: ReduceOp,
    dtype: DType,
    accumulator: &mut [u8],
    source: &[u8],
) -> Result<(), Error> {
    check(op, dtype, accumulator.len())?;
    if accumulator.len() != source.len() {
        let (len, expected) = (source.len(), accumulator.len());
        return Err(Error::WrongLength {
            buffer: "source",
            dtype,
            len,
            expected,
        });
    }
    let dtype = match op {
        ReduceOp::Prod => dtype,
        _ => part(dtype),
    };
    let len = block_bytes(dtype);
    for (accumulator, source) in accumulator.chunks_mut(len).zip(source.chunks(len)) {
        reduce_block(op, dtype, accumulator, source);
    }
    Ok(())
}

/// Divides the sums left by [`ReduceOp::Avg`] by the number of `contributions`.
///
/// Integers are truncated toward zero.
///
/// # Errors
///
/// If the type has no average, the buffer does not hold a whole number of elements, or there are no
/// contributions.
pub fn finish_average(
    dtype: DType,
    accumulator: &mut [u8],
    contributions: usize,
) -> Result<(), Error> {
    check(ReduceOp::Avg, dtype, accumulator.len())?;
    if contributions == 0 {
        return Err(Error::EmptyAverage);
    }
    let dtype = part(dtype);
    for block in accumulator.chunks_mut(block_bytes(dtype)) {
        divide_block(dtype, block, contributions);
    }
    Ok(())
}

fn check(op: ReduceOp, dtype: DType, len: usize) -> Result<(), Error> {
    if !op.applies_to(dtype) {
        return Err(Error::UnsupportedReduce { op, dtype });
    }
    dtype
        .elements_in(len)
        .map(drop)
        .ok_or(Error::PartialElement { dtype, len })
}

/// The type whose elements are added one by one: complex numbers are pairs of `f32`.
fn part(dtype: DType) -> DType {
    if dtype == DType::C64 {
        DType::F32
    } else {
        dtype
    }
}

fn reduce_block(op: ReduceOp, dtype: DType, accumulator: &mut [u8], source: &[u8]) {
    macro_rules! reduce_as {
        ($type:ty) => {{
            let (mut left, mut right) = ([<$type>::default(); BLOCK], [<$type>::default(); BLOCK]);
            blocks::read(accumulator, &mut left, <$type>::from_le_bytes);
            blocks::read(source, &mut right, <$type>::from_le_bytes);
            combine(op, &mut left, &right);
            blocks::write(&left, accumulator, <$type>::to_le_bytes);
        }};
    }
    match dtype {
        DType::Bool => reduce_truth(op, accumulator, source),
        DType::U8 => reduce_as!(u8),
        DType::I8 => reduce_as!(i8),
        DType::U16 => reduce_as!(u16),
        DType::I16 => reduce_as!(i16),
        DType::U32 => reduce_as!(u32),
        DType::I32 => reduce_as!(i32),
        DType::U64 => reduce_as!(u64),
        DType::I64 => reduce_as!(i64),
        DType::F32 => reduce_as!(f32),
        DType::F64 => reduce_as!(f64),
        DType::C64 => multiply_complex(accumulator, source),
        _ => reduce_small(op, dtype, accumulator, source),
    }
}

/// Reduces floats of at most 16 bits.
fn reduce_small(op: ReduceOp, dtype: DType, accumulator: &mut [u8], source: &[u8]) {
    let (mut left, mut right) = ([0.0; BLOCK], [0.0; BLOCK]);
    let elements = accumulator.len() * 8 / dtype.bits();
    let (left, right) = (&mut left[..elements], &mut right[..elements]);
    blocks::to_f32(dtype, accumulator, left, Rounding::Nearest);
    blocks::to_f32(dtype, source, right, Rounding::Nearest);
    combine(op, left, right);
    blocks::from_f32(dtype, left, accumulator, Overflow::Native);
}

fn reduce_truth(op: ReduceOp, accumulator: &mut [u8], source: &[u8]) {
    let any = matches!(op, ReduceOp::Any | ReduceOp::Max);
    for (left, &right) in accumulator.iter_mut().zip(source) {
        let (one, other) = (*left != 0, right != 0);
        *left = u8::from(if any { one || other } else { one && other });
    }
}

/// Multiplies complex numbers.
fn multiply_complex(accumulator: &mut [u8], source: &[u8]) {
    let part = |bytes: &[u8; 8], index: usize| f32::from_le_bytes(bytes.as_chunks().0[index]);
    let (accumulator, source) = (accumulator.as_chunks_mut().0, source.as_chunks().0);
    for (left, right) in accumulator.iter_mut().zip(source) {
        let (a, b, c, d) = (part(left, 0), part(left, 1), part(right, 0), part(right, 1));
        left[..4].copy_from_slice(&(a * c - b * d).to_le_bytes());
        left[4..].copy_from_slice(&(a * d + b * c).to_le_bytes());
    }
}

fn divide_block(dtype: DType, accumulator: &mut [u8], contributions: usize) {
    let elements = accumulator.len() * 8 / dtype.bits();
    if !dtype.is_float() {
        let mut block = [0; BLOCK];
        let block = &mut block[..elements];
        blocks::to_integers(dtype, accumulator, block);
        for sum in &mut *block {
            *sum /= contributions as i128;
        }
        blocks::from_integers(dtype, block, accumulator);
    } else if dtype == DType::F64 {
        let mut block = [0.0; BLOCK];
        let block = &mut block[..elements];
        blocks::to_f64(dtype, accumulator, block);
        for sum in &mut *block {
            *sum /= contributions as f64;
        }
        blocks::from_f64(dtype, block, accumulator, Overflow::Native);
    } else {
        let mut block = [0.0; BLOCK];
        let block = &mut block[..elements];
        blocks::to_f32(dtype, accumulator, block, Rounding::Nearest);
        for sum in &mut *block {
            *sum /= contributions as f32;
        }
        blocks::from_f32(dtype, block, accumulator, Overflow::Native);
    }
}
