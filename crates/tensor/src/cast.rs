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
    let len = source.len();
    let elements = from
        .elements_in(len)
        .ok_or(Error::PartialElement { dtype: from, len })?;
    let expected = to.len_bytes(elements).ok_or(Error::PartialByte {
        dtype: to,
        elements,
    })?;
    if target.len() != expected {
        let len = target.len();
        return Err(Error::WrongLength {
            buffer: "target",
            dtype: to,
            len,
            expected,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! The values are compared with `ml_dtypes` in `tests/it/casts.rs`.

    use super::*;

    fn f32_to(to: DType, value: f32, overflow: Overflow) -> u64 {
        let source: Vec<u8> = [value; 4]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let mut target = vec![0; to.len_bytes(4).unwrap()];
        cast(DType::F32, to, &source, &mut target, overflow).unwrap();
        let mut word = [0; 8];
        let len = to.bits().div_ceil(8);
        word[..len].copy_from_slice(&target[..len]);
        u64::from_le_bytes(word) & (u64::MAX >> (64 - to.bits()))
    }

    #[test]
    fn what_overflows_becomes_what_the_type_has_for_it() {
        let cases = [
            (DType::F16, 0x7c00, 0x7bff),
            (DType::Bf16, 0x7f80, 0x7f7f),
            (DType::F8E5M2, 0x7c, 0x7b),
            (DType::F8E4M3, 0x7f, 0x7e),
            (DType::F8E4M3Fnuz, 0x80, 0x7f),
            (DType::F8E5M2Fnuz, 0x80, 0x7f),
            (DType::F8E8M0, 0xff, 0xfe),
            (DType::F6E2M3, 0x1f, 0x1f),
            (DType::F6E3M2, 0x1f, 0x1f),
            (DType::F4, 0x7, 0x7),
        ];
        for (dtype, native, saturated) in cases {
            for value in [f32::MAX, f32::INFINITY] {
                assert_eq!(f32_to(dtype, value, Overflow::Native), native, "{dtype}");
                assert_eq!(
                    f32_to(dtype, value, Overflow::Saturate),
                    saturated,
                    "{dtype}"
                );
            }
        }
    }

    #[test]
    fn a_wide_integer_is_rounded_once() {
        // One above the middle of two bf16 neighbours; by way of f32 it would be the middle itself.
        let value = (1_i64 << 62) + (1 << 54) + 1;
        for (value, code) in [(value, 0x5e81_u16), (value - 1, 0x5e80), (-value, 0xde81)] {
            let mut target = [0; 2];
            cast(
                DType::I64,
                DType::Bf16,
                &value.to_le_bytes(),
                &mut target,
                Overflow::Native,
            )
            .unwrap();
            assert_eq!(u16::from_le_bytes(target), code);
        }
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        let mut target = [0; 8];
        cast(
            DType::Bool,
            DType::U16,
            &[0, 1, 2, 255],
            &mut target,
            Overflow::Native,
        )
        .unwrap();
        assert_eq!(target, [0, 0, 1, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn packed_elements_start_in_the_lowest_bits() {
        let mut target = [0; 4];
        cast(
            DType::F4,
            DType::I8,
            &[0x42, 0x0a],
            &mut target,
            Overflow::Native,
        )
        .unwrap();
        assert_eq!(target.map(u8::cast_signed), [1, 2, -1, 0]);
        let mut target = [0; 3];
        let source = [1, 2, 4, 0xff_u8]; // 1, 2, 4 and -1 are the codes 8, 16, 24 and 40.
        cast(
            DType::I8,
            DType::F6E2M3,
            &source,
            &mut target,
            Overflow::Native,
        )
        .unwrap();
        assert_eq!(
            u32::from_le_bytes([target[0], target[1], target[2], 0]),
            8 | 16 << 6 | 24 << 12 | 40 << 18
        );
    }

    #[test]
    fn every_length_of_a_last_block_is_cast() {
        for elements in [0, 4, 508, 512, 516, 1024, 1028] {
            for to in DType::ALL {
                let source: Vec<u8> = (0..elements)
                    .map(|index: usize| u8::from(index.is_multiple_of(3)))
                    .collect();
                let mut target = vec![0; to.len_bytes(elements).unwrap()];
                cast(DType::U8, to, &source, &mut target, Overflow::Native).unwrap();
                if to != DType::C64 && to != DType::F8E8M0 {
                    let mut back = vec![9; elements];
                    cast(to, DType::U8, &target, &mut back, Overflow::Native).unwrap();
                    assert_eq!(back, source, "{to}");
                }
            }
        }
    }

    #[test]
    fn a_complex_source_has_no_real_cast() {
        let mut same = [0; 8];
        cast(
            DType::C64,
            DType::C64,
            &[7; 8],
            &mut same,
            Overflow::Saturate,
        )
        .unwrap();
        assert_eq!(same, [7; 8]);
        let error = cast(
            DType::C64,
            DType::F32,
            &[0; 8],
            &mut [0; 4],
            Overflow::Native,
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "cannot cast `c64` to `f32`");
    }

    #[test]
    fn buffers_of_the_wrong_length_are_refused() {
        let refused = |from, to, source: &[u8], target: usize| {
            cast(from, to, source, &mut vec![0; target], Overflow::Native)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused(DType::F32, DType::F64, &[0; 7], 8),
            "a buffer of 7 bytes does not hold a whole number of `f32` elements"
        );
        assert_eq!(
            refused(DType::U8, DType::F6E2M3, &[0; 5], 3),
            "5 elements of `f6_e2m3` do not fill whole bytes"
        );
        assert_eq!(
            refused(DType::F32, DType::Bf16, &[0; 8], 8),
            "the target buffer of 8 bytes should hold 4 bytes of `bf16`"
        );
    }
}
