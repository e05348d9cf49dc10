//! Single elements, as numbers and as text.

use crate::blocks::{self, Rounding};
use crate::{DType, Overflow};

/// The value of element `index`; `None` if it lies outside `bytes` or is complex.
///
/// Every value is exact but for 64-bit integers, which are rounded to the nearest.
pub fn read_f64(dtype: DType, bytes: &[u8], index: usize) -> Option<f64> {
    if dtype == DType::C64 {
        return None;
    }
    let (group, place) = group_of(dtype, bytes, index)?;
    let mut values = [0.0; 4];
    blocks::to_f64(dtype, group, &mut values);
    Some(values[place])
}

/// The shortest text that names element `index` among all values of its type; `None` if it lies
/// outside `bytes`.
///
/// ```
/// use cairn_tensor::{DType, format_element};
///
/// assert_eq!(format_element(DType::Bf16, &[0xcd, 0x3d], 0).unwrap(), "0.1");
/// ```
pub fn format_element(dtype: DType, bytes: &[u8], index: usize) -> Option<String> {
    if dtype == DType::C64 {
        let (real, imaginary) = (index.checked_mul(2)?, index.checked_mul(2)?.checked_add(1)?);
        let real = format_element(DType::F32, bytes, real)?;
        let imaginary = format_element(DType::F32, bytes, imaginary)?;
        let plus = if imaginary.starts_with('-') { "" } else { "+" };
        return Some(format!("{real}{plus}{imaginary}i"));
    }
    if dtype.is_float() {
        return read_f64(dtype, bytes, index).map(|value| format_float(dtype, value));
    }
    let (group, _) = group_of(dtype, bytes, index)?;
    let mut value = [0];
    blocks::to_integers(dtype, group, &mut value);
    Some(if dtype == DType::Bool {
        (value[0] != 0).to_string()
    } else {
        value[0].to_string()
    })
}

/// The fewest whole bytes around element `index`, and its place among the elements in them.
fn group_of(dtype: DType, bytes: &[u8], index: usize) -> Option<(&[u8], usize)> {
    let elements = match dtype.bits() {
        4 => 2,
        6 => 4,
        _ => 1,
    };
    let len = dtype.bits() * elements / 8;
    let start = (index / elements).checked_mul(len)?;
    Some((bytes.get(start..)?.get(..len)?, index % elements))
}

/// The shortest decimal that `dtype` rounds to `value`.
fn format_float(dtype: DType, value: f64) -> String {
    let shortest = (0..f64::DIGITS as usize + 2)
        .filter_map(|digits| format!("{value:.digits$e}").parse::<f64>().ok())
        .find(|&short| round_to(dtype, short) == value)
        .unwrap_or(value); // NaN, which equals nothing.
    match shortest.abs() {
        0.0 | f64::INFINITY | 1e-5..1e16 => shortest.to_string(),
        _ if shortest.is_nan() => shortest.to_string(),
        _ => format!("{shortest:e}"),
    }
}

/// The value of the element of `dtype` nearest to `value`.
fn round_to(dtype: DType, value: f64) -> f64 {
    if dtype == DType::F64 {
        return value;
    }
    let rounding = if dtype == DType::F32 {
        Rounding::Nearest
    } else {
        Rounding::Odd
    };
    let (mut narrow, mut bytes, mut rounded) = ([0.0; 4], [0; 4], [0.0; 4]);
    blocks::to_f32(DType::F64, &value.to_le_bytes(), &mut narrow, rounding);
    blocks::from_f32(dtype, &narrow, &mut bytes, Overflow::Native);
    blocks::to_f64(dtype, &bytes, &mut rounded);
    rounded[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_text_tells_every_value_of_a_small_float_apart() {
        for dtype in DType::ALL
            .into_iter()
            .filter(|dtype| dtype.is_float() && dtype.bits() <= 16)
        {
            let mut texts = std::collections::HashMap::new();
            for code in 0..1_u32 << dtype.bits() {
                let bytes = code.to_le_bytes();
                let value = read_f64(dtype, &bytes, 0).unwrap();
                let text = format_element(dtype, &bytes, 0).unwrap();
                assert_eq!(
                    round_to(dtype, text.parse().unwrap()).is_nan(),
                    value.is_nan()
                );
                if !value.is_nan() {
                    assert_eq!(texts.insert(text.clone(), code), None, "{dtype} {text}");
                    let sign_and_value =
                        |value: f64| (value.is_sign_negative(), round_to(dtype, value));
                    assert_eq!(sign_and_value(text.parse().unwrap()), sign_and_value(value));
                }
            }
        }
    }

    #[test]
    fn elements_read_well() {
        let f32_text = |value: f32| format_element(DType::F32, &value.to_le_bytes(), 0).unwrap();
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (-16_777_216.0, "-16777216"),
            (1e30, "1e30"),
            (1.5e-8, "1.5e-8"),
            (f32::INFINITY, "inf"),
            (f32::NEG_INFINITY, "-inf"),
            (f32::NAN, "NaN"),
            (f32::MAX, "3.4028235e38"),
            (1e-45, "1e-45"),
        ] {
            assert_eq!(f32_text(value), text);
        }
        let third = (1.0_f64 / 3.0).to_le_bytes();
        assert_eq!(
            format_element(DType::F64, &third, 0).unwrap(),
            "0.3333333333333333"
        );
        assert_eq!(format_element(DType::Bool, &[0, 7], 1).unwrap(), "true");
        assert_eq!(
            format_element(DType::U64, &[255; 8], 0).unwrap(),
            u64::MAX.to_string()
        );
        assert_eq!(
            format_element(DType::I64, &i64::MIN.to_le_bytes(), 0).unwrap(),
            i64::MIN.to_string()
        );
    }

    #[test]
    fn a_complex_element_shows_both_parts() {
        let text = |real: f32, imaginary: f32| {
            let bytes = [real.to_le_bytes(), imaginary.to_le_bytes()].concat();
            assert_eq!(read_f64(DType::C64, &bytes, 0), None);
            format_element(DType::C64, &bytes, 0).unwrap()
        };
        assert_eq!(text(1.0, 2.0), "1+2i");
        assert_eq!(text(-0.5, -0.0), "-0.5-0i");
        assert_eq!(text(0.0, f32::NAN), "0+NaNi");
    }

    #[test]
    fn packed_elements_are_found_inside_their_bytes() {
        let values: Vec<_> = (0..5)
            .map(|index| read_f64(DType::F4, &[0x21, 0x43], index))
            .collect();
        assert_eq!(values, [Some(0.5), Some(1.0), Some(1.5), Some(2.0), None]);
        let bytes = (8_u32 | 16 << 6 | 24 << 12 | 40 << 18).to_le_bytes();
        let values: Vec<_> = (0..5)
            .map(|index| read_f64(DType::F6E2M3, &bytes[..3], index))
            .collect();
        assert_eq!(values, [Some(1.0), Some(2.0), Some(4.0), Some(-1.0), None]);
    }

    #[test]
    fn an_element_outside_the_buffer_is_none() {
        for dtype in DType::ALL {
            for index in [1, 2, 4, usize::MAX] {
                let bytes = vec![0; dtype.bits() * 4 / 8];
                assert_eq!(
                    format_element(dtype, &bytes, index).is_some(),
                    index < 4,
                    "{dtype}"
                );
                assert_eq!(read_f64(dtype, &bytes, 4), None);
            }
            assert_eq!(format_element(dtype, &[], 0), None);
        }
    }
}
