//! Writing a block of a common type as elements of any.

#![expect(
    clippy::cast_possible_truncation,
    reason = "casts from floats saturate, integers are clamped, and codes fit their type"
)]

use super::BLOCK;
use crate::minifloat::{Minifloat, encode_bf16, encode_e8m0};
use crate::{DType, Overflow};

/// Writes floats of at most 32 bits, and complex numbers without imaginary part.
pub(crate) fn from_f32(dtype: DType, block: &[f32], target: &mut [u8], overflow: Overflow) {
    match overflow {
        Overflow::Native => from_f32_with::<false>(dtype, block, target),
        Overflow::Saturate => from_f32_with::<true>(dtype, block, target),
    }
}

/// Writes `f64`, integers and truth values; to integers truncated toward zero and saturated.
pub(crate) fn from_f64(dtype: DType, block: &[f64], target: &mut [u8], overflow: Overflow) {
    match dtype {
        DType::Bool => write(block, target, |value| [u8::from(value != 0.0)]),
        DType::U8 => write(block, target, |value| (value as u8).to_le_bytes()),
        DType::I8 => write(block, target, |value| (value as i8).to_le_bytes()),
        DType::U16 => write(block, target, |value| (value as u16).to_le_bytes()),
        DType::I16 => write(block, target, |value| (value as i16).to_le_bytes()),
        DType::U32 => write(block, target, |value| (value as u32).to_le_bytes()),
        DType::I32 => write(block, target, |value| (value as i32).to_le_bytes()),
        DType::U64 => write(block, target, |value| (value as u64).to_le_bytes()),
        DType::I64 => write(block, target, |value| (value as i64).to_le_bytes()),
        DType::F64 => match overflow {
            Overflow::Native => write(block, target, f64::to_le_bytes),
            Overflow::Saturate => write(block, target, |value| {
                value.clamp(f64::MIN, f64::MAX).to_le_bytes()
            }),
        },
        _ => unreachable!("`{dtype}` elements are not written from f64"),
    }
}

/// Writes integers, saturated, and truth values.
pub(crate) fn from_integers(dtype: DType, block: &[i128], target: &mut [u8]) {
    macro_rules! saturated {
        ($type:ty) => {
            write(block, target, |value| {
                (value.clamp(<$type>::MIN.into(), <$type>::MAX.into()) as $type).to_le_bytes()
            })
        };
    }
    match dtype {
        DType::Bool => write(block, target, |value| [u8::from(value != 0)]),
        DType::U8 => saturated!(u8),
        DType::I8 => saturated!(i8),
        DType::U16 => saturated!(u16),
        DType::I16 => saturated!(i16),
        DType::U32 => saturated!(u32),
        DType::I32 => saturated!(i32),
        DType::U64 => saturated!(u64),
        DType::I64 => saturated!(i64),
        _ => unreachable!("`{dtype}` elements are not written from integers"),
    }
}

/// Writes elements of `LEN` bytes each.
#[inline(always)]
pub(crate) fn write<T: Copy, const LEN: usize>(
    block: &[T],
    target: &mut [u8],
    encode: impl Fn(T) -> [u8; LEN],
) {
    for (bytes, &value) in target.as_chunks_mut().0.iter_mut().zip(block) {
        *bytes = encode(value);
    }
}

/// The overflow is a constant here so that the loops do not test it.
fn from_f32_with<const SATURATE: bool>(dtype: DType, block: &[f32], target: &mut [u8]) {
    let overflow = if SATURATE {
        Overflow::Saturate
    } else {
        Overflow::Native
    };
    let bound = if SATURATE { f32::MAX } else { f32::INFINITY };
    match dtype {
        DType::F32 => write(block, target, |value| {
            value.clamp(-bound, bound).to_le_bytes()
        }),
        DType::C64 => write(block, target, |value| {
            u64::from(value.clamp(-bound, bound).to_bits()).to_le_bytes()
        }),
        DType::F16 => write(block, target, |value| {
            Minifloat::F16.encode(value, overflow).to_le_bytes()
        }),
        DType::Bf16 => write(block, target, |value| {
            encode_bf16(value, overflow).to_le_bytes()
        }),
        DType::F8E5M2 => write_byte(Minifloat::F8E5M2, block, target, overflow),
        DType::F8E4M3 => write_byte(Minifloat::F8E4M3, block, target, overflow),
        DType::F8E4M3Fnuz => write_byte(Minifloat::F8E4M3_FNUZ, block, target, overflow),
        DType::F8E5M2Fnuz => write_byte(Minifloat::F8E5M2_FNUZ, block, target, overflow),
        DType::F8E8M0 => write(block, target, |value| [encode_e8m0(value, overflow)]),
        DType::F4 => write_packed::<2, 1>(Minifloat::F4, block, target),
        DType::F6E2M3 => write_packed::<4, 3>(Minifloat::F6E2M3, block, target),
        DType::F6E3M2 => write_packed::<4, 3>(Minifloat::F6E3M2, block, target),
        _ => unreachable!("`{dtype}` elements are not written from f32"),
    }
}

#[inline(always)]
fn write_byte(format: Minifloat, block: &[f32], target: &mut [u8], overflow: Overflow) {
    write(
        block,
        target,
        |value| [format.encode(value, overflow) as u8],
    );
}

/// Writes packed elements, `COUNT` in `LEN` bytes: first their codes, then the word they make.
/// These formats saturate whatever the overflow.
#[inline(always)]
fn write_packed<const COUNT: usize, const LEN: usize>(
    format: Minifloat,
    block: &[f32],
    target: &mut [u8],
) {
    let bits = 8 * LEN / COUNT;
    let mut codes = [0; BLOCK];
    write_byte(format, block, &mut codes, Overflow::Saturate);
    for (bytes, codes) in target
        .as_chunks_mut::<LEN>()
        .0
        .iter_mut()
        .zip(codes.as_chunks::<COUNT>().0)
    {
        let mut word = 0;
        for (index, &code) in codes.iter().enumerate() {
            word |= u32::from(code) << (index * bits);
        }
        bytes.copy_from_slice(&word.to_le_bytes()[..LEN]);
    }
}
