//! Floats of at most 16 bits, and their conversion from and to `f32`.
//!
//! All conversions are branch-free arithmetic on bits, so that loops over them vectorise.

#![expect(
    clippy::cast_possible_truncation,
    reason = "codes are computed in 32 bits and fit their type"
)]

use crate::Overflow;

/// The bits of `f32` values.
const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;
const QUIET_NAN: u32 = 0x7fc0_0000;

/// A float format with a sign, an exponent and a mantissa, at most 16 bits wide.
///
/// Every value is exact in `f32`. The codes of one sign, counted from zero, ascend with their
/// magnitude: subnormals, normals up to `max_finite`, then infinity if there is one, then NaNs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Minifloat {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: u32,
    /// The code of the largest finite value.
    max_finite: u32,
    /// Whether infinity follows the largest finite value.
    has_infinity: bool,
    /// Whether the code of negative zero is the only NaN, and zero has no sign.
    nan_is_negative_zero: bool,
}

impl Minifloat {
    pub(crate) const F4: Minifloat = Minifloat::finite(2, 1, 1);
    pub(crate) const F6E2M3: Minifloat = Minifloat::finite(2, 3, 1);
    pub(crate) const F6E3M2: Minifloat = Minifloat::finite(3, 2, 3);
    pub(crate) const F8E4M3: Minifloat = Minifloat {
        max_finite: 0x7e,
        ..Minifloat::finite(4, 3, 7)
    };
    pub(crate) const F8E5M2: Minifloat = Minifloat::ieee(5, 2);
    pub(crate) const F8E4M3_FNUZ: Minifloat = Minifloat::fnuz(4, 3, 8);
    pub(crate) const F8E5M2_FNUZ: Minifloat = Minifloat::fnuz(5, 2, 16);
    pub(crate) const F16: Minifloat = Minifloat::ieee(5, 10);

    /// A format in which every code is a number.
    const fn finite(exponent_bits: u32, mantissa_bits: u32, bias: u32) -> Minifloat {
        Minifloat {
            exponent_bits,
            mantissa_bits,
            bias,
            max_finite: (1 << (exponent_bits + mantissa_bits)) - 1,
            has_infinity: false,
            nan_is_negative_zero: false,
        }
    }

    /// A format without infinity and negative zero, whose code is NaN.
    const fn fnuz(exponent_bits: u32, mantissa_bits: u32, bias: u32) -> Minifloat {
        Minifloat {
            nan_is_negative_zero: true,
            ..Minifloat::finite(exponent_bits, mantissa_bits, bias)
        }
    }

    /// A format whose highest exponent means infinity and NaN.
    const fn ieee(exponent_bits: u32, mantissa_bits: u32) -> Minifloat {
        let finite =
            Minifloat::finite(exponent_bits, mantissa_bits, (1 << (exponent_bits - 1)) - 1);
        Minifloat {
            max_finite: finite.max_finite - (1 << mantissa_bits),
            has_infinity: true,
            ..finite
        }
    }

    /// The bit of the sign, which is also the number of codes per sign.
    const fn sign_bit(self) -> u32 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// How far the mantissa moves to become one of `f32`.
    const fn shift(self) -> u32 {
        f32::MANTISSA_DIGITS - 1 - self.mantissa_bits
    }

    /// What is added to the exponent for it to become one of `f32`, in place.
    const fn rebias(self) -> u32 {
        (127 - self.bias) << (f32::MANTISSA_DIGITS - 1)
    }

    const fn has_nan(self) -> bool {
        self.nan_is_negative_zero || self.max_finite + 1 < self.sign_bit()
    }

    /// The code of NaN with this sign bit. Formats without NaN give a zero of the other sign.
    const fn nan(self, sign: u32) -> u32 {
        if self.nan_is_negative_zero {
            self.sign_bit()
        } else if self.has_nan() {
            let quiet = 1 << (self.mantissa_bits - 1);
            sign | (self.max_finite + 1) | quiet
        } else {
            sign ^ self.sign_bit()
        }
    }

    /// The code for a value with this sign bit beyond the largest finite one.
    const fn beyond(self, sign: u32, overflow: Overflow) -> u32 {
        match overflow {
            Overflow::Native if self.has_infinity => sign | (self.max_finite + 1),
            Overflow::Native if self.has_nan() => self.nan(sign),
            _ => sign | self.max_finite,
        }
    }

    /// The value of a code.
    #[inline(always)]
    pub(crate) fn decode(self, code: u16) -> f32 {
        let code = u32::from(code);
        let sign = (code & self.sign_bit()) << (31 - self.exponent_bits - self.mantissa_bits);
        let magnitude = code & (self.sign_bit() - 1);
        let normal = (magnitude << self.shift()) + self.rebias();
        let quantum = f32::from_bits((128 - self.bias - self.mantissa_bits) << 23);
        let subnormal = (magnitude as f32 * quantum).to_bits();
        let is_subnormal = magnitude >> self.mantissa_bits == 0;
        let finite = if is_subnormal { subnormal } else { normal };
        let special = if self.has_infinity {
            normal | INFINITY
        } else {
            QUIET_NAN
        };
        let is_special = if self.nan_is_negative_zero {
            code == self.sign_bit()
        } else {
            magnitude > self.max_finite
        };
        f32::from_bits(sign | if is_special { special } else { finite })
    }

    /// The code nearest to a value, the even one of two.
    #[inline(always)]
    pub(crate) fn encode(self, value: f32, overflow: Overflow) -> u16 {
        let bits = value.to_bits();
        let sign = (bits >> 31) << (self.exponent_bits + self.mantissa_bits);
        let absolute = bits & !SIGN;
        let rounded = self.round(absolute);
        let is_unsigned = self.nan_is_negative_zero && rounded == 0;
        let mut code = if is_unsigned { 0 } else { sign | rounded };
        if rounded > self.max_finite {
            code = self.beyond(sign, overflow);
        }
        if absolute > INFINITY {
            code = self.nan(sign);
        }
        code as u16
    }

    /// The code nearest to the value of these `f32` bits without sign; too large a value gives too
    /// large a code.
    #[inline(always)]
    fn round(self, absolute: u32) -> u32 {
        let shift = self.shift();
        let half_or_less = (1 << (shift - 1)) - 1 + (absolute >> shift & 1);
        let normal = (absolute + half_or_less) >> shift;
        // This power of two is so large that adding it rounds the value to a multiple of the
        // smallest subnormal, which then counts in the last bits of the sum.
        let magic = (127 - self.bias + shift + 1) << 23;
        let sum = f32::from_bits(absolute) + f32::from_bits(magic);
        let subnormal = sum.to_bits().wrapping_sub(magic);
        let is_normal = absolute >= self.rebias() + (1 << 23);
        if is_normal {
            normal - (self.rebias() >> shift)
        } else {
            subnormal
        }
    }
}

/// The value of a `Bf16` code, which is the upper half of its `f32`.
#[inline(always)]
pub(crate) fn decode_bf16(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// The `Bf16` code nearest to a value, the even one of two.
#[inline(always)]
pub(crate) fn encode_bf16(value: f32, overflow: Overflow) -> u16 {
    let bits = value.to_bits();
    let absolute = bits & !SIGN;
    let mut upper = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    if overflow == Overflow::Saturate && absolute >= 0x7f7f_8000 {
        upper = bits & SIGN | 0x7f7f_0000;
    }
    if absolute > INFINITY {
        upper = bits | QUIET_NAN;
    }
    (upper >> 16) as u16
}

/// The value of an `F8E8M0` code: a power of two, or NaN for 255.
#[inline(always)]
pub(crate) fn decode_e8m0(code: u8) -> f32 {
    f32::from_bits(match code {
        0 => 0x0040_0000, // 2⁻¹²⁷ is subnormal.
        255 => QUIET_NAN,
        _ => u32::from(code) << 23,
    })
}

/// The `F8E8M0` code of a value: the nearest power of two, the larger of two.
///
/// As in `ml_dtypes`, zero and negative values become NaN, and what lies between 2⁻¹²⁷ and 2⁻¹²⁶
/// becomes 2⁻¹²⁶.
#[inline(always)]
pub(crate) fn encode_e8m0(value: f32, overflow: Overflow) -> u8 {
    let bits = value.to_bits();
    let absolute = bits & !SIGN;
    let half = 0x0040_0000;
    let rounded = if absolute > half {
        (absolute + half) >> 23
    } else {
        0
    };
    let largest = match overflow {
        Overflow::Native => 255,
        Overflow::Saturate => 254,
    };
    let is_positive = bits.wrapping_sub(1) < INFINITY; // Infinity included, zero and NaN not.
    if is_positive {
        rounded.min(largest) as u8
    } else {
        255
    }
}
