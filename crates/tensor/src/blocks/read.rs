//! Reading elements of any type into a block of a common one.

#![expect(
    clippy::cast_possible_truncation,
    reason = "floats are rounded, and packed codes fit their type"
)]

use super::BLOCK;
use crate::DType;
use crate::minifloat::{Minifloat, decode_bf16, decode_e8m0};

/// How values that are not exact in `f32` are rounded to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the nearest: the result is final.
    Nearest,
    /// To the neighbour with the odd mantissa: rounding once more, to at least two bits less, is
    /// then the same as rounding the value itself.
    Odd,
}

/// Reads real elements as `f32`.
pub(crate) fn to_f32(dtype: DType, source: &[u8], block: &mut [f32], rounding: Rounding) {
    match dtype {
        DType::Bool => read(source, block, |[byte]| f32::from(u8::from(byte != 0))),
        DType::U8 => read(source, block, |bytes| f32::from(u8::from_le_bytes(bytes))),
        DType::I8 => read(source, block, |bytes| f32::from(i8::from_le_bytes(bytes))),
        DType::U16 => read(source, block, |bytes| f32::from(u16::from_le_bytes(bytes))),
        DType::I16 => read(source, block, |bytes| f32::from(i16::from_le_bytes(bytes))),
        DType::F32 => read(source, block, f32::from_le_bytes),
        DType::F16 => read(source, block, |bytes| {
            Minifloat::F16.decode(u16::from_le_bytes(bytes))
        }),
        DType::Bf16 => read(source, block, |bytes| {
            decode_bf16(u16::from_le_bytes(bytes))
        }),
        DType::F8E5M2 => read_byte(Minifloat::F8E5M2, source, block),
        DType::F8E4M3 => read_byte(Minifloat::F8E4M3, source, block),
        DType::F8E4M3Fnuz => read_byte(Minifloat::F8E4M3_FNUZ, source, block),
        DType::F8E5M2Fnuz => read_byte(Minifloat::F8E5M2_FNUZ, source, block),
        DType::F8E8M0 => read(source, block, |[code]| decode_e8m0(code)),
        DType::F4 => read_packed::<2, 1>(Minifloat::F4, source, block),
        DType::F6E2M3 => read_packed::<4, 3>(Minifloat::F6E2M3, source, block),
        DType::F6E3M2 => read_packed::<4, 3>(Minifloat::F6E3M2, source, block),
        DType::U32 | DType::I32 | DType::U64 | DType::I64 | DType::F64 => match rounding {
            Rounding::Nearest => wide_to_nearest_f32(dtype, source, block),
            Rounding::Odd => wide_to_odd_f32(dtype, source, block),
        },
        DType::C64 => unreachable!("complex elements are not read as real ones"),
    }
}

/// Reads real elements as `f64`: exact, but 64-bit integers are rounded to the nearest.
pub(crate) fn to_f64(dtype: DType, source: &[u8], block: &mut [f64]) {
    match dtype {
        DType::U32 => read(source, block, |bytes| f64::from(u32::from_le_bytes(bytes))),
        DType::I32 => read(source, block, |bytes| f64::from(i32::from_le_bytes(bytes))),
        DType::U64 => read(source, block, |bytes| u64::from_le_bytes(bytes) as f64),
        DType::I64 => read(source, block, |bytes| i64::from_le_bytes(bytes) as f64),
        DType::F64 => read(source, block, f64::from_le_bytes),
        _ => {
            let mut narrow = [0.0; BLOCK];
            let narrow = &mut narrow[..block.len()];
            to_f32(dtype, source, narrow, Rounding::Nearest);
            for (value, &narrow) in block.iter_mut().zip(&*narrow) {
                *value = f64::from(narrow);
            }
        }
    }
}

/// Reads integers and truth values, which are 0 and 1.
pub(crate) fn to_integers(dtype: DType, source: &[u8], block: &mut [i128]) {
    match dtype {
        DType::Bool => read(source, block, |[byte]| i128::from(byte != 0)),
        DType::U8 => read(source, block, |bytes| u8::from_le_bytes(bytes).into()),
        DType::I8 => read(source, block, |bytes| i8::from_le_bytes(bytes).into()),
        DType::U16 => read(source, block, |bytes| u16::from_le_bytes(bytes).into()),
        DType::I16 => read(source, block, |bytes| i16::from_le_bytes(bytes).into()),
        DType::U32 => read(source, block, |bytes| u32::from_le_bytes(bytes).into()),
        DType::I32 => read(source, block, |bytes| i32::from_le_bytes(bytes).into()),
        DType::U64 => read(source, block, |bytes| u64::from_le_bytes(bytes).into()),
        DType::I64 => read(source, block, |bytes| i64::from_le_bytes(bytes).into()),
        _ => unreachable!("`{dtype}` elements are not read as integers"),
    }
}

/// Reads elements of `LEN` bytes each.
#[inline(always)]
pub(crate) fn read<T, const LEN: usize>(
    source: &[u8],
    block: &mut [T],
    decode: impl Fn([u8; LEN]) -> T,
) {
    for (value, bytes) in block.iter_mut().zip(source.as_chunks().0) {
        *value = decode(*bytes);
    }
}

#[inline(always)]
fn read_byte(format: Minifloat, source: &[u8], block: &mut [f32]) {
    read(source, block, |[code]| format.decode(code.into()));
}

/// Reads packed elements, `COUNT` in `LEN` bytes: first their codes, then their values.
#[inline(always)]
fn read_packed<const COUNT: usize, const LEN: usize>(
    format: Minifloat,
    source: &[u8],
    block: &mut [f32],
) {
    let bits = 8 * LEN / COUNT;
    let mut codes = [0; BLOCK];
    for (codes, bytes) in codes
        .as_chunks_mut::<COUNT>()
        .0
        .iter_mut()
        .zip(source.as_chunks::<LEN>().0)
    {
        let mut word = [0; 4];
        word[..LEN].copy_from_slice(bytes);
        let word = u32::from_le_bytes(word);
        for (index, code) in codes.iter_mut().enumerate() {
            *code = (word >> (index * bits)) as u8 & ((1 << bits) - 1);
        }
    }
    read_byte(format, &codes, block);
}

fn wide_to_nearest_f32(dtype: DType, source: &[u8], block: &mut [f32]) {
    match dtype {
        DType::U32 => read(source, block, |bytes| u32::from_le_bytes(bytes) as f32),
        DType::I32 => read(source, block, |bytes| i32::from_le_bytes(bytes) as f32),
        DType::U64 => read(source, block, |bytes| u64::from_le_bytes(bytes) as f32),
        DType::I64 => read(source, block, |bytes| i64::from_le_bytes(bytes) as f32),
        _ => read(source, block, |bytes| f64::from_le_bytes(bytes) as f32),
    }
}

fn wide_to_odd_f32(dtype: DType, source: &[u8], block: &mut [f32]) {
    match dtype {
        DType::U32 => read(source, block, |bytes| {
            odd_f32(u32::from_le_bytes(bytes).into())
        }),
        DType::I32 => read(source, block, |bytes| {
            odd_f32(i32::from_le_bytes(bytes).into())
        }),
        DType::U64 => read(source, block, |bytes| {
            odd_f32(odd_f64(u64::from_le_bytes(bytes)))
        }),
        DType::I64 => read(source, block, |bytes| {
            let value = i64::from_le_bytes(bytes);
            let magnitude = odd_f32(odd_f64(value.unsigned_abs()));
            if value < 0 { -magnitude } else { magnitude }
        }),
        _ => read(source, block, |bytes| odd_f32(f64::from_le_bytes(bytes))),
    }
}

/// Rounds to odd: an inexact value becomes the neighbour nearer to zero with its last bit set.
#[inline(always)]
fn odd_f32(value: f64) -> f32 {
    let nearest = value as f32;
    let wide = f64::from(nearest);
    let toward_zero = nearest.to_bits() - u32::from(wide.abs() > value.abs());
    f32::from_bits(toward_zero | u32::from(wide != value))
}

/// Rounds an integer to odd: the bits that do not fit leave their mark in the last one that does.
#[inline(always)]
fn odd_f64(value: u64) -> f64 {
    if value >> f64::MANTISSA_DIGITS == 0 {
        return value as f64;
    }
    let excess = u64::BITS - f64::MANTISSA_DIGITS;
    let kept = (value >> excess) | u64::from(value << f64::MANTISSA_DIGITS != 0);
    kept as f64 * (1_u64 << excess) as f64
}
