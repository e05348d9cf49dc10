//! Element types: their names, sizes and spellings.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The type of a tensor's elements.
///
/// Elements are little-endian. Those smaller than a byte are packed without gaps, the first in the
/// lowest bits: two `F4` fill a byte, four `F6` three bytes. Safetensors fixes the number of bits
/// and demands whole bytes, but says nothing of the order inside a byte; this one is that of
/// PyTorch's `float4_e2m1fn_x2`. Drawn with bit 7 on the left, each digit a bit of that element:
///
/// ```text
/// F4   byte 0: 11110000        F6   byte 0: 11000000
///                                   byte 1: 22221111
///                                   byte 2: 33333322
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// A truth value in one byte: zero is false, anything else is true, and true is written as one.
    Bool,
    /// OCP MXFP4 element (E2M1): no infinity, no NaN.
    F4,
    /// OCP MXFP6 element (E2M3): no infinity, no NaN.
    F6E2M3,
    /// OCP MXFP6 element (E3M2): no infinity, no NaN.
    F6E3M2,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// OCP FP8 E5M2: IEEE-like, with infinity and NaN.
    F8E5M2,
    /// OCP FP8 E4M3 (`float8_e4m3fn`): NaN, no infinity.
    F8E4M3,
    /// OCP MX scale (E8M0): powers of two from 2⁻¹²⁷ to 2¹²⁷ and NaN; no zero, no sign.
    F8E8M0,
    /// FP8 E4M3 with bias 8, one NaN, no infinity, no negative zero.
    F8E4M3Fnuz,
    /// FP8 E5M2 with bias 16, one NaN, no infinity, no negative zero.
    F8E5M2Fnuz,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// IEEE half precision.
    F16,
    /// The upper half of an IEEE single.
    Bf16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE single precision.
    F32,
    /// Complex number of two `F32`, real part first.
    C64,
    /// IEEE double precision.
    F64,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
}

impl DType {
    /// Every element type, in order.
    pub const ALL: [DType; 22] = [
        DType::Bool,
        DType::F4,
        DType::F6E2M3,
        DType::F6E3M2,
        DType::U8,
        DType::I8,
        DType::F8E5M2,
        DType::F8E4M3,
        DType::F8E8M0,
        DType::F8E4M3Fnuz,
        DType::F8E5M2Fnuz,
        DType::I16,
        DType::U16,
        DType::F16,
        DType::Bf16,
        DType::I32,
        DType::U32,
        DType::F32,
        DType::C64,
        DType::F64,
        DType::I64,
        DType::U64,
    ];

    /// The size of one element in bits.
    pub const fn bits(self) -> usize {
        match self {
            DType::F4 => 4,
            DType::F6E2M3 | DType::F6E3M2 => 6,
            DType::Bool | DType::U8 | DType::I8 => 8,
            DType::F8E5M2 | DType::F8E4M3 | DType::F8E8M0 => 8,
            DType::F8E4M3Fnuz | DType::F8E5M2Fnuz => 8,
            DType::I16 | DType::U16 | DType::F16 | DType::Bf16 => 16,
            DType::I32 | DType::U32 | DType::F32 => 32,
            DType::C64 | DType::F64 | DType::I64 | DType::U64 => 64,
        }
    }

    /// The name people read and write, for example `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::F4 => "f4",
            DType::F6E2M3 => "f6_e2m3",
            DType::F6E3M2 => "f6_e3m2",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::F8E5M2 => "f8_e5m2",
            DType::F8E4M3 => "f8_e4m3",
            DType::F8E8M0 => "f8_e8m0",
            DType::F8E4M3Fnuz => "f8_e4m3fnuz",
            DType::F8E5M2Fnuz => "f8_e5m2fnuz",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::F32 => "f32",
            DType::C64 => "c64",
            DType::F64 => "f64",
            DType::I64 => "i64",
            DType::U64 => "u64",
        }
    }

    /// The spelling in a safetensors header, for example `BF16`.
    pub const fn safetensors_name(self) -> &'static str {
        match self {
            DType::Bool => "BOOL",
            DType::F4 => "F4",
            DType::F6E2M3 => "F6_E2M3",
            DType::F6E3M2 => "F6_E3M2",
            DType::U8 => "U8",
            DType::I8 => "I8",
            DType::F8E5M2 => "F8_E5M2",
            DType::F8E4M3 => "F8_E4M3",
            DType::F8E8M0 => "F8_E8M0",
            DType::F8E4M3Fnuz => "F8_E4M3FNUZ",
            DType::F8E5M2Fnuz => "F8_E5M2FNUZ",
            DType::I16 => "I16",
            DType::U16 => "U16",
            DType::F16 => "F16",
            DType::Bf16 => "BF16",
            DType::I32 => "I32",
            DType::U32 => "U32",
            DType::F32 => "F32",
            DType::C64 => "C64",
            DType::F64 => "F64",
            DType::I64 => "I64",
            DType::U64 => "U64",
        }
    }

    /// The size of so many elements in bytes; `None` if it overflows or does not fill whole bytes.
    pub fn len_bytes(self, elements: usize) -> Option<usize> {
        let bits = self.bits();
        if bits >= 8 {
            return elements.checked_mul(bits / 8);
        }
        let len_bits = elements.checked_mul(bits)?;
        len_bits.is_multiple_of(8).then_some(len_bits / 8)
    }

    /// Whether the elements are real floats.
    pub(crate) const fn is_float(self) -> bool {
        match self {
            DType::Bool | DType::C64 => false,
            DType::U8 | DType::I8 | DType::U16 | DType::I16 => false,
            DType::U32 | DType::I32 | DType::U64 | DType::I64 => false,
            DType::F4 | DType::F6E2M3 | DType::F6E3M2 | DType::F8E8M0 => true,
            DType::F8E5M2 | DType::F8E4M3 | DType::F8E4M3Fnuz | DType::F8E5M2Fnuz => true,
            DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => true,
        }
    }

    /// How many elements `len_bytes` bytes hold; `None` if the last one would be cut.
    pub(crate) fn elements_in(self, len_bytes: usize) -> Option<usize> {
        let bits = self.bits();
        if bits >= 8 {
            return len_bytes
                .is_multiple_of(bits / 8)
                .then_some(len_bytes / (bits / 8));
        }
        let len_bits = len_bytes.checked_mul(8)?;
        len_bits.is_multiple_of(bits).then_some(len_bits / bits)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Reads either spelling: `bf16` or `BF16`.
    fn from_str(text: &str) -> Result<DType, Error> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text || dtype.safetensors_name() == text)
            .ok_or_else(|| Error::UnknownDType {
                name: text.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_every_dtype_parse_to_it() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
            assert_eq!(dtype.safetensors_name().parse::<DType>().unwrap(), dtype);
            assert_eq!(dtype.name().to_uppercase(), dtype.safetensors_name());
        }
    }

    #[test]
    fn an_unknown_dtype_is_refused_and_the_choices_are_listed() {
        for text in ["", "float32", "Bf16", "bf16 ", "ß"] {
            let error = text.parse::<DType>().unwrap_err();
            assert_eq!(error.to_string(), format!("unknown dtype `{text}`"));
            let hint = error.hint().unwrap();
            assert!(
                DType::ALL
                    .iter()
                    .all(|dtype| hint.contains(&format!("`{dtype}`"))),
                "{hint}"
            );
        }
    }

    #[test]
    fn all_lists_the_dtypes_in_order() {
        assert!(DType::ALL.is_sorted());
    }

    #[test]
    fn sizes_that_overflow_or_cut_a_byte_are_none() {
        assert_eq!(DType::F32.len_bytes(0), Some(0));
        assert_eq!(DType::F32.len_bytes(3), Some(12));
        assert_eq!(DType::F64.len_bytes(usize::MAX), None);
        assert_eq!(DType::U8.len_bytes(usize::MAX), Some(usize::MAX));
        assert_eq!(DType::F4.len_bytes(3), None);
        assert_eq!(DType::F4.len_bytes(4), Some(2));
        assert_eq!(DType::F4.len_bytes(usize::MAX), None);
        assert_eq!(DType::F6E2M3.len_bytes(2), None);
        assert_eq!(DType::F6E3M2.len_bytes(4), Some(3));
    }

    #[test]
    fn elements_in_inverts_len_bytes() {
        for dtype in DType::ALL {
            for elements in 0..100 {
                if let Some(len) = dtype.len_bytes(elements) {
                    assert_eq!(dtype.elements_in(len), Some(elements));
                }
            }
        }
        assert_eq!(DType::F6E2M3.elements_in(4), None);
        assert_eq!(DType::F32.elements_in(7), None);
    }
}
