//! Blocks of elements as `f32`, `f64` or integers: the step between two element types.
//!
//! A conversion between any two types reads a block into one of three common types, chosen so that
//! the value is rounded once, and writes it from there. The block stays in the first-level cache,
//! and each of the loops here handles one type, so that the compiler can vectorise it.

mod read;
mod write;

pub(crate) use read::{Rounding, read, to_f32, to_f64, to_integers};
pub(crate) use write::{from_f32, from_f64, from_integers, write};

use crate::DType;

/// The number of elements of a block: a multiple of 4, so that packed elements fill whole bytes.
pub(crate) const BLOCK: usize = 512;

/// The size of a whole block in bytes.
pub(crate) const fn block_bytes(dtype: DType) -> usize {
    BLOCK * dtype.bits() / 8
}
