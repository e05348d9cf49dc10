//! The arithmetic of reductions, for every type that has its own.

use super::ReduceOp;

/// A number that can be reduced in its own type.
pub(super) trait Number: Copy {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
}

/// Combines each number of `source` into the one of `accumulator` at the same place.
pub(super) fn combine<T: Number>(op: ReduceOp, accumulator: &mut [T], source: &[T]) {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => combine_with(accumulator, source, T::plus),
        ReduceOp::Prod => combine_with(accumulator, source, T::times),
        ReduceOp::Max => combine_with(accumulator, source, T::larger),
        ReduceOp::Min => combine_with(accumulator, source, T::smaller),
        ReduceOp::Any | ReduceOp::All => unreachable!("`{op}` does not apply to numbers"),
    }
}

#[inline(always)]
fn combine_with<T: Copy>(accumulator: &mut [T], source: &[T], combined: impl Fn(T, T) -> T) {
    for (left, &right) in accumulator.iter_mut().zip(source) {
        *left = combined(*left, right);
    }
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
        }
    )*};
}

macro_rules! float {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
            fn larger(self, other: Self) -> Self {
                if self > other || self.is_nan() { self } else { other }
            }
            fn smaller(self, other: Self) -> Self {
                if self < other || self.is_nan() { self } else { other }
            }
        }
    )*};
}

integer!(u8, i8, u16, i16, u32, i32, u64, i64);
float!(f32, f64);
