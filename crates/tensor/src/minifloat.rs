//! Floats of at most 16 bits, and their conversion from and to `f32`.
//!
//! All conversions are branch-free arithmetic on bits, so that loops over them vectorise.

#![expect(
    clippy::cast_possible_truncation,
    reason = "codes are computed in 32 bits and fit their type"
)]

use crate::Overflow;

/// A float format with a sign, an exponent and a mantissa, at most 16 bits wide.
///
/// Every value is exact in `f32`. The codes of one sign, counted from zero, ascend with their magnitude:
/// subnormals, normals up to `max_finite`, then infinity if there is one, then NaNs.
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

    /// The code of NaN for an `f32` of this sign (in place). Formats without NaN give a zero of the other sign.
    const fn nan(self, sign: u32) -> u32 {
        if self.nan_is_negative_zero {
            self.sign_bit()
        } else if self.has_infinity {
            sign | (self.max_finite + 1) | (1 << (self.mantissa_bits - 1))
        } else if self.max_finite + 1 < self.sign_bit() {
            sign | (self.max_finite + 1)
        } else {
            sign ^ self.sign_bit()
        }
    }

    /// The code for a value of this sign beyond the largest finite one.
    const fn beyond(self, sign: u32, overflow: Overflow) -> u32 {
        let saturates = !self.nan_is_negative_zero && self.max_finite + 1 == self.sign_bit();
        match overflow {
            Overflow::Native if self.has_infinity => sign | (self.max_finite + 1),
            Overflow::Native if !saturates => self.nan(sign),
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
        let mut bits = if magnitude >> self.mantissa_bits == 0 {
            subnormal
        } else {
            normal
        };
        if self.has_infinity {
            bits = if magnitude > self.max_finite {
                bits | 0x7f80_0000
            } else {
                bits
            };
        } else {
            bits = if magnitude > self.max_finite {
                0x7fc0_0000
            } else {
                bits
            };
        }
        if self.nan_is_negative_zero {
            bits = if code == self.sign_bit() {
                0x7fc0_0000
            } else {
                bits
            };
        }
        f32::from_bits(sign | bits)
    }

    /// The code nearest to a value, the even one of two.
    #[inline(always)]
    pub(crate) fn encode(self, value: f32, overflow: Overflow) -> u16 {
        let bits = value.to_bits();
        let sign = (bits >> 31) << (self.exponent_bits + self.mantissa_bits);
        let absolute = bits & 0x7fff_ffff;
        let rounded = self.round(absolute);
        let mut code = sign | rounded;
        if self.nan_is_negative_zero {
            code = if rounded == 0 { 0 } else { code };
        }
        code = if rounded > self.max_finite {
            self.beyond(sign, overflow)
        } else {
            code
        };
        code = if absolute > 0x7f80_0000 {
            self.nan(sign)
        } else {
            code
        };
        code as u16
    }

    /// The code nearest to the value of these `f32` bits without sign; too large a value gives too large a code.
    #[inline(always)]
    fn round(self, absolute: u32) -> u32 {
        let shift = self.shift();
        let half_below_even = (1 << (shift - 1)) - 1 + (absolute >> shift & 1);
        let normal = (absolute + half_below_even) >> shift;
        // Adding this power of two leaves as many mantissa bits as a subnormal has, rounded by the hardware.
        let magic = (127 - self.bias + shift + 1) << 23;
        let subnormal = (f32::from_bits(absolute) + f32::from_bits(magic))
            .to_bits()
            .wrapping_sub(magic);
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
    let absolute = bits & 0x7fff_ffff;
    let mut rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    if overflow == Overflow::Saturate {
        let largest = bits & 0x8000_0000 | 0x7f7f_0000;
        rounded = if absolute < 0x7f7f_8000 {
            rounded
        } else {
            largest
        };
    }
    let quiet = bits | 0x0040_0000;
    let upper = if absolute > 0x7f80_0000 {
        quiet
    } else {
        rounded
    };
    (upper >> 16) as u16
}

/// The value of an `F8E8M0` code: a power of two, or NaN for 255.
#[inline(always)]
pub(crate) fn decode_e8m0(code: u8) -> f32 {
    let bits = match code {
        0 => 0x0040_0000, // 2⁻¹²⁷ is subnormal.
        255 => 0x7fc0_0000,
        _ => u32::from(code) << 23,
    };
    f32::from_bits(bits)
}

/// The `F8E8M0` code of a value: the nearest power of two, the larger of two.
///
/// As in `ml_dtypes`, zero and negative values become NaN, and what lies between 2⁻¹²⁷ and 2⁻¹²⁶ becomes 2⁻¹²⁶.
#[inline(always)]
pub(crate) fn encode_e8m0(value: f32, overflow: Overflow) -> u8 {
    let bits = value.to_bits();
    let absolute = bits & 0x7fff_ffff;
    let rounded = if absolute > 0x0040_0000 {
        (absolute + 0x0040_0000) >> 23
    } else {
        0
    };
    let largest = match overflow {
        Overflow::Native => 255,
        Overflow::Saturate => 254,
    };
    let is_number = bits.wrapping_sub(1) < 0x7f80_0000; // Positive, up to infinity.
    if is_number {
        rounded.min(largest) as u8
    } else {
        255
    }
}
