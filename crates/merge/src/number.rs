//! The numbers a merge computes with.
//!
//! A merge in `bf16` rounds after every operation, as a framework does that keeps its tensors in `bf16`: the result has the same
//! bits, and so does the choice of the largest elements. Sums over a tensor are kept in `f64`.

use cairn_tensor::{DType, Overflow, cast};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A machine number.
pub(crate) trait Real:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// The bits of its [`key`](Real::key).
    const KEY_BITS: u32;

    fn of(value: f64) -> Self;
    fn f64(self) -> f64;
    fn abs(self) -> Self;

    /// `self + left · right`, rounded once.
    fn add_product(self, left: Self, right: Self) -> Self;

    /// A number that grows with the value.
    fn key(self) -> u64;

    /// Reads elements of type `from`, each rounded at most once.
    fn decode(from: DType, bytes: &[u8], out: &mut [Self]);

    /// Writes elements of type `to`.
    fn encode(values: &[Self], to: DType, bytes: &mut [u8]);
}

/// A way to compute: a machine number, and how results are rounded.
pub(crate) trait Arithmetic: Send + Sync + 'static {
    type Real: Real;
    const DTYPE: DType;
    /// The bits of a key, from the top, that can differ from zero.
    const KEY_BITS: u32;

    /// The nearest number that the type has; ties to even.
    fn round(value: Self::Real) -> Self::Real;

    fn of(value: f64) -> Self::Real {
        Self::round(Self::Real::of(value))
    }
}

pub(crate) struct Double;
pub(crate) struct Single;
pub(crate) struct Half;
pub(crate) struct Brain;

impl Arithmetic for Double {
    type Real = f64;
    const DTYPE: DType = DType::F64;
    const KEY_BITS: u32 = 64;

    fn round(value: f64) -> f64 {
        value
    }
}

impl Arithmetic for Single {
    type Real = f32;
    const DTYPE: DType = DType::F32;
    const KEY_BITS: u32 = 32;

    fn round(value: f32) -> f32 {
        value
    }
}

impl Arithmetic for Brain {
    type Real = f32;
    const DTYPE: DType = DType::Bf16;
    const KEY_BITS: u32 = 16;

    #[inline(always)]
    fn round(value: f32) -> f32 {
        // No branch, and 32 bits all the way: the loops around it run on vectors.
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        let kept = if value.is_nan() {
            bits | 0x40_0000
        } else {
            rounded
        };
        f32::from_bits(kept & 0xffff_0000)
    }
}

impl Arithmetic for Half {
    type Real = f32;
    const DTYPE: DType = DType::F16;
    const KEY_BITS: u32 = 32;

    #[inline(always)]
    fn round(value: f32) -> f32 {
        /// The smallest normal number.
        const NORMAL: f32 = 6.103_515_6e-5;
        /// The middle between the largest number and the one that would follow it.
        const OVERFLOW: f32 = 65520.0;
        let magnitude = value.abs();
        let rounded = if magnitude < NORMAL {
            // Around 0.5 neighbours lie 2⁻²⁴ apart, which is the distance of the subnormal numbers.
            (magnitude + 0.5) - 0.5
        } else if magnitude >= OVERFLOW {
            f32::INFINITY
        } else {
            let bits = magnitude.to_bits();
            let even = (bits >> 13) & 1;
            f32::from_bits((bits.wrapping_add(0xfff + even)) & !0x1fff)
        };
        match value.is_nan() {
            true => value,
            false => rounded.copysign(value),
        }
    }
}

#[inline(always)]
fn brain_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = (bits.wrapping_add(0x7fff + even)) >> 16;
    let nan = (bits >> 16) | 0x40;
    #[expect(clippy::cast_possible_truncation, reason = "16 bits are left")]
    if value.is_nan() {
        nan as u16
    } else {
        rounded as u16
    }
}

impl Real for f32 {
    const KEY_BITS: u32 = 32;

    #[inline(always)]
    fn of(value: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "rounds")]
        let value = value as f32;
        value
    }

    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.abs()
    }

    /// By way of `f64`, in which the product is exact: as good as the instruction, which not every processor has.
    #[inline(always)]
    fn add_product(self, left: Self, right: Self) -> Self {
        Self::of(f64::from(self) + f64::from(left) * f64::from(right))
    }

    #[inline(always)]
    fn key(self) -> u64 {
        let bits = self.to_bits();
        let flip = if bits >> 31 == 1 { u32::MAX } else { 1 << 31 };
        u64::from(bits ^ flip)
    }

    fn decode(from: DType, bytes: &[u8], out: &mut [Self]) {
        match from {
            DType::Bf16 => {
                for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
                }
            }
            DType::F32 => {
                for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            _ => {
                let mut wide = vec![0; 4 * out.len()];
                cast(from, DType::F32, bytes, &mut wide, Overflow::Native)
                    .expect("elements were read whole");
                Self::decode(DType::F32, &wide, out);
            }
        }
    }

    fn encode(values: &[Self], to: DType, bytes: &mut [u8]) {
        match to {
            DType::Bf16 => {
                for (bytes, value) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                    *bytes = brain_bits(*value).to_le_bytes();
                }
            }
            DType::F32 => {
                for (bytes, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                    *bytes = value.to_le_bytes();
                }
            }
            _ => {
                let mut wide = vec![0; 4 * values.len()];
                Self::encode(values, DType::F32, &mut wide);
                cast(DType::F32, to, &wide, bytes, Overflow::Native)
                    .expect("the target was measured for these elements");
            }
        }
    }
}

impl Real for f64 {
    const KEY_BITS: u32 = 64;

    fn of(value: f64) -> Self {
        value
    }

    fn f64(self) -> f64 {
        self
    }

    fn abs(self) -> Self {
        self.abs()
    }

    fn add_product(self, left: Self, right: Self) -> Self {
        left.mul_add(right, self)
    }

    fn key(self) -> u64 {
        let bits = self.to_bits();
        let flip = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
        bits ^ flip
    }

    fn decode(from: DType, bytes: &[u8], out: &mut [Self]) {
        let mut wide = vec![0; 8 * out.len()];
        cast(from, DType::F64, bytes, &mut wide, Overflow::Native)
            .expect("elements were read whole");
        for (value, bytes) in out.iter_mut().zip(wide.as_chunks::<8>().0) {
            *value = f64::from_le_bytes(*bytes);
        }
    }

    fn encode(values: &[Self], to: DType, bytes: &mut [u8]) {
        let wide: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        cast(DType::F64, to, &wide, bytes, Overflow::Native)
            .expect("the target was measured for these elements");
    }
}

/// Whether a type's elements are numbers with a point.
pub(crate) fn is_float(dtype: DType) -> bool {
    dtype.name().starts_with('f') || dtype == DType::Bf16
}

/// The type in which elements of both types can be told apart.
pub(crate) fn promoted(left: DType, right: DType) -> DType {
    match (left, right) {
        (left, right) if left == right => left,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    }
}

/// Calls a generic function with the arithmetic of a type.
macro_rules! with_arithmetic {
    ($dtype:expr, $function:ident ( $($argument:expr),* $(,)? )) => {
        match $dtype {
            cairn_tensor::DType::Bf16 => $function::<crate::number::Brain>($($argument),*),
            cairn_tensor::DType::F16 => $function::<crate::number::Half>($($argument),*),
            cairn_tensor::DType::F64 => $function::<crate::number::Double>($($argument),*),
            _ => $function::<crate::number::Single>($($argument),*),
        }
    };
}
pub(crate) use with_arithmetic;

#[cfg(test)]
mod tests {
    //! Rounding agrees with the casts of the tensor crate, which agree with `ml_dtypes`.

    use super::*;
    use proptest::prelude::*;

    fn through(dtype: DType, value: f32) -> f32 {
        let mut narrow = [0; 2];
        cast(
            DType::F32,
            dtype,
            &value.to_le_bytes(),
            &mut narrow,
            Overflow::Native,
        )
        .unwrap();
        let mut wide = [0; 4];
        cast(dtype, DType::F32, &narrow, &mut wide, Overflow::Native).unwrap();
        f32::from_le_bytes(wide)
    }

    fn check(value: f32) {
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(
            same(Brain::round(value), through(DType::Bf16, value)),
            "{value:e}"
        );
        assert!(
            same(Half::round(value), through(DType::F16, value)),
            "{value:e}"
        );
    }

    #[test]
    fn edges_of_every_range_are_rounded_right() {
        let tiny = f32::from_bits(1);
        for value in [
            0.0, tiny, 2e-8, 2.98e-8, 3e-8, 6.1e-5, 6.103_5e-5, 65504.0, 65519.0, 65520.0,
        ] {
            for value in [value, -value, value * 1.000_001] {
                check(value);
            }
        }
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX] {
            check(value);
        }
    }

    proptest! {
        #[test]
        fn any_number_is_rounded_as_a_cast_does(bits in any::<u32>()) {
            check(f32::from_bits(bits));
        }

        #[test]
        fn keys_are_ordered_as_the_numbers_are(left in any::<f32>(), right in any::<f32>()) {
            prop_assume!(!left.is_nan() && !right.is_nan());
            if left < right {
                prop_assert!(left.key() < right.key());
                prop_assert!(f64::from(left).key() < f64::from(right).key());
            }
        }
    }
}
