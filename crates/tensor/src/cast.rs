//! Conversions between element types.

use crate::blocks::{self, BLOCK, Rounding, block_bytes};
use crate::{DType, Error};

/// What a cast to a float does with values beyond its largest finite one, infinities included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// What the type defines: infinity where it has one, else NaN where it has one, else the
    /// largest finite value.
    Native,
    /// The largest finite value. NaN stays NaN where the type has one.
    Saturate,
}

/// Converts every element of `source` into the element of `target` at the same place.
///
/// Every value is rounded once. Between equal types the bytes are copied.
///
/// | To | Rule |
/// |---|---|
/// | float | to the nearest, ties to even; `overflow` decides what lies beyond the largest value |
/// | integer | truncated toward zero, then saturated; NaN is 0 |
/// | `bool` | false for zero, true for all else, NaN included |
/// | `c64` | the real part as for `f32`, the imaginary part zero |
///
/// Values agree with Python's `ml_dtypes`, also in its peculiar places: `f4` and `f6` have no NaN
/// and turn one into a zero of the opposite sign; `f8_e8m0` has neither sign nor zero, turns both
/// into NaN, and rounds ties up. They differ where `ml_dtypes` goes through `f32` and so rounds
/// `f64` and integers twice, and where NumPy wraps integers around.
///
/// # Errors
///
/// If a buffer does not hold a whole number of elements, the two hold different numbers of them, or
/// a complex source is cast to a real type.
pub fn cast(
    from: DType,
    to: DType,
    source: &[u8],
    target: &mut [u8],
    overflow: Overflow,
) -> Result<(), Error> {
    check_lengths(from, to, source, target)?;
    if from == to {
        target.copy_from_slice(source);
        return Ok(());
    }
    if from == DType::C64 {
        return Err(Error::UnsupportedCast { from, to });
    }
    let convert = route(from, to);
    let blocks = source
        .chunks(block_bytes(from))
        .zip(target.chunks_mut(block_bytes(to)));
    for (source, target) in blocks {
        convert(Cast { from, to, overflow }, source, target);
    }
    Ok(())
}

/// A conversion, as the routes see it.
#[derive(Clone, Copy)]
struct Cast {
    from: DType,
    to: DType,
    overflow: Overflow,
}

/// The way from one real type to another type on which values are rounded only once.
fn route(from: DType, to: DType) -> fn(Cast, &[u8], &mut [u8]) {
    match (from.is_float(), to) {
        (_, DType::F64) => through_f64,
        (_, DType::F32 | DType::C64) => through_f32::<false>,
        (_, to) if to.is_float() => through_f32::<true>,
        (true, _) => through_f64,
        (false, _) => through_integers,
    }
}

fn through_f32<const ODD: bool>(cast: Cast, source: &[u8], target: &mut [u8]) {
    let rounding = if ODD {
        Rounding::Odd
    } else {
        Rounding::Nearest
    };
    let mut block = [0.0; BLOCK];
    let block = &mut block[..source.len() * 8 / cast.from.bits()];
    blocks::to_f32(cast.from, source, block, rounding);
    blocks::from_f32(cast.to, block, target, cast.overflow);
}

fn through_f64(cast: Cast, source: &[u8], target: &mut [u8]) {
    let mut block = [0.0; BLOCK];
    let block = &mut block[..source.len() * 8 / cast.from.bits()];
    blocks::to_f64(cast.from, source, block);
    blocks::from_f64(cast.to, block, target, cast.overflow);
}

fn through_integers(cast: Cast, source: &[u8], target: &mut [u8]) {
    let mut block = [0; BLOCK];
    let block = &mut block[..source.len() * 8 / cast.from.bits()];
    blocks::to_integers(cast.from, source, block);
    blocks::from_integers(cast.to, block, target);
}

fn check_lengths(from: DType, to: DType, source: &[u8], target: &[u8]) -> Result<(), Error> {
    let partial = |dtype, len| Error::PartialElement { dtype, len };
    let elements = from
        .elements_in(source.len())
        .ok_or_else(|| partial(from, source.len()))?;
    let expected = to
        .len_bytes(elements)
        .ok_or_else(|| partial(to, target.len()))?;
    if target.len() != expected {
        return Err(Error::WrongLength {
            buffer: "target",
            dtype: to,
            len: target.len(),
            expected,
        });
    }
    Ok(())
}
