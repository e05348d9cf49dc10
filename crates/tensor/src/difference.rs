//! How far apart the values of two tensors are.

#[cfg(test)]
mod tests;

use crate::blocks::{self, BLOCK, block_bytes};
use crate::summary::real;
use crate::{DType, Error};

/// How far apart two elements may be and still count as the same: |left − right| ≤ absolute + relative · |right|.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tolerance {
    /// Whatever their size.
    pub absolute: f64,
    /// As a share of the right one.
    pub relative: f64,
}

/// What was found between two rows of elements.
///
/// Two NaN are the same, and so are two infinities of one sign. Integers are compared exactly with integers, all else as `f64`.
/// The parts of complex elements are compared one by one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Difference {
    /// Elements on each side.
    pub elements: u64,
    /// Those that differ by more than the tolerance, with those that are NaN on one side.
    pub differing: u64,
    /// Those that are NaN on one side only.
    pub nan_mismatches: u64,
    /// The largest |left − right|.
    pub max_absolute: f64,
    /// The largest |left − right| / max(|left|, |right|), from 0 to 2.
    pub max_relative: f64,
    /// Which element has the largest absolute difference; the first of them.
    pub worst: Option<u64>,
    /// Σ left², Σ right² and Σ left·right over the pairs that are finite.
    products: [f64; 3],
}

impl Difference {
    /// Compares the elements of `left` and `right`, each a type and its bytes.
    ///
    /// # Errors
    /// If an element is cut, or the two hold different numbers of them.
    pub fn between(
        left: (DType, &[u8]),
        right: (DType, &[u8]),
        tolerance: Tolerance,
    ) -> Result<Self, Error> {
        let (left, right) = ((real(left.0), left.1), (real(right.0), right.1));
        check(left, right)?;
        let exact = !left.0.is_float() && !right.0.is_float();
        let mut difference = Self::default();
        let blocks = left.1.chunks(block_bytes(left.0));
        for (ours, theirs) in blocks.zip(right.1.chunks(block_bytes(right.0))) {
            let (mut one, mut other) = ([0.0; BLOCK], [0.0; BLOCK]);
            let count = ours.len() * 8 / left.0.bits();
            blocks::to_f64(left.0, ours, &mut one[..count]);
            blocks::to_f64(right.0, theirs, &mut other[..count]);
            let mut next = Self::of_products(&one[..count], &other[..count]);
            match (left.0 == right.0 && ours == theirs, exact) {
                (true, _) => {}
                (false, true) => next.integers((left.0, ours), (right.0, theirs), tolerance),
                (false, false) => next.reals(&one[..count], &other[..count], tolerance),
            }
            difference.append(&next);
        }
        Ok(difference)
    }

    /// So many elements that are the same on both sides, and are not looked at.
    pub fn none(elements: u64) -> Self {
        Self {
            elements,
            ..Self::default()
        }
    }

    /// Adds what was found between the elements that follow.
    pub fn append(&mut self, next: &Self) {
        if self.worst.is_none() || next.max_absolute > self.max_absolute {
            let worst = next.worst.map(|index| index + self.elements);
            self.worst = worst.or(self.worst);
        }
        self.elements += next.elements;
        self.differing += next.differing;
        self.nan_mismatches += next.nan_mismatches;
        self.max_absolute = self.max_absolute.max(next.max_absolute);
        self.max_relative = self.max_relative.max(next.max_relative);
        for (sum, product) in self.products.iter_mut().zip(next.products) {
            *sum += product;
        }
    }

    /// The cosine of the angle between the two as vectors; `None` if one of them is zero or beyond what `f64` can square.
    pub fn cosine(&self) -> Option<f64> {
        let [left, right, both] = self.products;
        let product = left * right;
        let length = match product.is_normal() {
            true => product.sqrt(),
            false => left.sqrt() * right.sqrt(),
        };
        let cosine = both / length;
        cosine.is_finite().then(|| cosine.clamp(-1.0, 1.0))
    }

    fn of_products(left: &[f64], right: &[f64]) -> Self {
        let mut products = [0.0; 3];
        for (&one, &other) in left.iter().zip(right) {
            if one.is_finite() && other.is_finite() {
                products[0] += one * one;
                products[1] += other * other;
                products[2] += one * other;
            }
        }
        Self {
            elements: left.len() as u64,
            products,
            ..Self::default()
        }
    }

    fn reals(&mut self, left: &[f64], right: &[f64], tolerance: Tolerance) {
        for (index, (&one, &other)) in left.iter().zip(right).enumerate() {
            match (one.is_nan(), other.is_nan()) {
                (true, true) => {}
                (false, false) if one == other => {}
                (false, false) => self.note(index, (one - other).abs(), one, other, tolerance),
                _ => {
                    self.nan_mismatches += 1;
                    self.differing += 1;
                }
            }
        }
    }

    fn integers(&mut self, left: (DType, &[u8]), right: (DType, &[u8]), tolerance: Tolerance) {
        let (mut ours, mut theirs) = ([0; BLOCK], [0; BLOCK]);
        blocks::to_integers(left.0, left.1, &mut ours);
        blocks::to_integers(right.0, right.1, &mut theirs);
        let count = left.1.len() * 8 / left.0.bits();
        for index in 0..count {
            let (one, other) = (ours[index], theirs[index]);
            if one != other {
                let distance = one.abs_diff(other) as f64;
                self.note(index, distance, one as f64, other as f64, tolerance);
            }
        }
    }

    /// Takes account of two elements that are not the same.
    fn note(&mut self, index: usize, distance: f64, one: f64, other: f64, tolerance: Tolerance) {
        // An infinite allowance, from an infinite element, allows nothing.
        let allowed = tolerance.absolute + tolerance.relative * other.abs();
        self.differing += u64::from(distance > allowed || distance.is_infinite());
        let relative = match distance.is_finite() {
            true => distance / one.abs().max(other.abs()),
            // Halves of the largest numbers have a difference that is a number.
            false if one.is_finite() && other.is_finite() => {
                (one / 2.0 - other / 2.0).abs() / one.abs().max(other.abs()) * 2.0
            }
            false if one.is_infinite() && other.is_infinite() => 2.0,
            false => 1.0,
        };
        self.max_relative = self.max_relative.max(relative);
        if distance > self.max_absolute {
            self.max_absolute = distance;
            self.worst = Some(index as u64);
        }
    }
}

fn check(left: (DType, &[u8]), right: (DType, &[u8])) -> Result<(), Error> {
    let elements = |(dtype, bytes): (DType, &[u8])| {
        let len = bytes.len();
        let elements = dtype.elements_in(len);
        elements.ok_or(Error::PartialElement { dtype, len })
    };
    let (ours, theirs) = (elements(left)?, elements(right)?);
    if ours == theirs {
        return Ok(());
    }
    let (dtype, len) = (right.0, right.1.len());
    let expected = dtype.len_bytes(ours).ok_or(Error::PartialByte {
        dtype,
        elements: ours,
    })?;
    Err(Error::WrongLength {
        buffer: "right",
        dtype,
        len,
        expected,
    })
}
