//! The numbers that kernels compute with.

use crate::buffer::{Shelf, Shelves};
use bytemuck::Pod;
use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};
use std::sync::Arc;

/// A number that kernels compute with: `f32` to train, `f64` to check gradients.
pub trait Real:
    Pod
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Less than every number.
    const NEGATIVE_INFINITY: Self;

    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
    /// The same number, exactly.
    fn to_f64(self) -> f64;
    /// The square root.
    fn sqrt(self) -> Self;
    /// e to this power, in loops that the compiler turns into vectors for `f32`.
    fn exp(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// The greater of two.
    fn max(self, other: Self) -> Self;
    /// Whether it is neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Where buffers of this type wait.
    #[doc(hidden)]
    fn shelf(shelves: &Shelves) -> &Arc<Shelf<Self>>;
}

macro_rules! real {
    ($type:ty, $nearest:expr, $exp:expr, $shelf:ident) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEGATIVE_INFINITY: Self = <$type>::NEG_INFINITY;

            #[inline]
            fn from_f64(value: f64) -> Self {
                $nearest(value)
            }
            #[inline]
            fn to_f64(self) -> f64 {
                self.into()
            }
            #[inline]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
            fn ln(self) -> Self {
                self.ln()
            }
            #[inline]
            fn max(self, other: Self) -> Self {
                <$type>::max(self, other)
            }
            #[inline]
            fn is_finite(self) -> bool {
                self.is_finite()
            }
            fn shelf(shelves: &Shelves) -> &Arc<Shelf<Self>> {
                &shelves.$shelf
            }
        }
    };
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the nearest is what is asked for"
)]
fn nearest(value: f64) -> f32 {
    value as f32
}

real!(f32, nearest, crate::exp::exp, singles);
real!(f64, std::convert::identity, f64::exp, doubles);
