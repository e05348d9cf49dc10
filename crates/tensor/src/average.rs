//! Running averages: what stays of many sources when each is seen once.
//!
//! The value of an element is held as the sum of two `f32`: `rounded`, the value rounded to `f32`, and `rest`, what
//! the rounding left out. Together they have 48 bits. One update moves a value by a small share of its distance
//! from the source; in plain `f32` that step is lost once it is smaller than half a unit in the last place, so that an
//! average with decay d stops up to 1/(2·(1 − d)) units away from where it belongs. The pair goes on: `rounded` stays
//! the `f32` next to what arithmetic in `f64` gives, or its neighbour.

#[cfg(test)]
mod tests;

use crate::minifloat::{Minifloat, decode_bf16};
use crate::{DType, Error};
use std::array;

/// What one more source does to the `VALUES` running values of an element.
pub trait Statistic<const VALUES: usize> {
    /// The values after `element` was seen.
    fn next(&self, values: [f64; VALUES], element: f64) -> [f64; VALUES];
}

/// An average that moves by a share of the distance: `value + weight · (element − value)`.
///
/// The weights, one for each update, decide which average it is: `1 − d` each time is an exponential one with decay `d`, `1/n`
/// at the n-th update the mean of all sources. A weight of 1 copies the source over a value of zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blend {
    /// The share, from 0 to 1.
    pub weight: f64,
}

impl Blend {
    /// One update of an exponential average.
    pub fn exponential(decay: f64) -> Self {
        Self {
            weight: 1.0 - decay,
        }
    }

    /// The update number `count`, from 1 on, of the mean of all sources.
    pub fn uniform(count: u64) -> Self {
        Self {
            weight: 1.0 / count as f64,
        }
    }
}

impl Statistic<1> for Blend {
    #[inline(always)]
    fn next(&self, [value]: [f64; 1], element: f64) -> [f64; 1] {
        [value + self.weight * (element - value)]
    }
}

/// The running values of some elements: little-endian `f32`, an array or a pair of arrays for each value.
#[derive(Debug)]
pub struct Running<'a, const VALUES: usize> {
    /// The values, rounded to `f32`.
    pub rounded: [&'a mut [u8]; VALUES],
    /// What the rounding left out; without it the values are plain `f32`.
    pub rest: Option<[&'a mut [u8]; VALUES]>,
}

/// Shows every element of `source` to the running values at the same place.
///
/// All arithmetic is in `f64`. NaN and infinity are what IEEE 754 makes of them: either in a source makes the value
/// NaN at the latest one update later, and it stays NaN. A value beyond the largest `f32` is an infinity, too.
///
/// # Errors
///
/// If the source has another type than `f32`, `bf16`, `f16` or `f64`, or the buffers do not hold the same whole number
/// of elements.
pub fn absorb<const VALUES: usize>(
    statistic: &impl Statistic<VALUES>,
    state: Running<VALUES>,
    dtype: DType,
    source: &[u8],
) -> Result<(), Error> {
    check(&state, dtype, source)?;
    match dtype {
        DType::F32 => each(statistic, state, source, |bytes| {
            f32::from_le_bytes(bytes).into()
        }),
        DType::Bf16 => each(statistic, state, source, |bytes| {
            decode_bf16(u16::from_le_bytes(bytes)).into()
        }),
        DType::F16 => each(statistic, state, source, |bytes| {
            Minifloat::F16.decode(u16::from_le_bytes(bytes)).into()
        }),
        DType::F64 => each(statistic, state, source, f64::from_le_bytes),
        _ => return Err(Error::UnsupportedAverage { dtype }),
    }
    Ok(())
}

fn check<const VALUES: usize>(
    state: &Running<VALUES>,
    dtype: DType,
    source: &[u8],
) -> Result<(), Error> {
    let len = source.len();
    let elements = dtype
        .elements_in(len)
        .ok_or(Error::PartialElement { dtype, len })?;
    let expected = DType::F32.len_bytes(elements).ok_or(Error::TooLarge)?;
    let arrays = state.rounded.iter().chain(state.rest.iter().flatten());
    match arrays.map(|array| array.len()).find(|len| *len != expected) {
        None => Ok(()),
        Some(len) => Err(Error::WrongLength {
            buffer: "accumulator",
            dtype: DType::F32,
            len,
            expected,
        }),
    }
}

/// The loops are written for the compiler to vectorise: arrays of equal length, no branch inside.
#[inline(always)]
fn each<const VALUES: usize, const LEN: usize>(
    statistic: &impl Statistic<VALUES>,
    state: Running<VALUES>,
    source: &[u8],
    decode: impl Fn([u8; LEN]) -> f64,
) {
    let source = source.as_chunks().0;
    let elements = |array| elements_of(array, source.len());
    let rounded = state.rounded.map(elements);
    match state.rest {
        None => {
            for (index, element) in source.iter().enumerate() {
                let values = array::from_fn(|value| wide(rounded[value][index]));
                let next = statistic.next(values, decode(*element));
                for value in 0..VALUES {
                    rounded[value][index] = narrow(next[value]).to_le_bytes();
                }
            }
        }
        Some(rest) => {
            let rest = rest.map(elements);
            for (index, element) in source.iter().enumerate() {
                let values =
                    array::from_fn(|value| wide(rounded[value][index]) + wide(rest[value][index]));
                let next = statistic.next(values, decode(*element));
                for value in 0..VALUES {
                    let nearest = narrow(next[value]);
                    rounded[value][index] = nearest.to_le_bytes();
                    let left = next[value] - f64::from(nearest);
                    rest[value][index] = narrow(left).to_le_bytes();
                }
            }
        }
    }
}

fn elements_of(array: &mut [u8], count: usize) -> &mut [[u8; 4]] {
    &mut array.as_chunks_mut().0[..count]
}

#[inline(always)]
fn wide(bytes: [u8; 4]) -> f64 {
    f32::from_le_bytes(bytes).into()
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
fn narrow(value: f64) -> f32 {
    value as f32
}
