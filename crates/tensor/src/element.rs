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
