//! What blocks are made of: linear layers that ranks share, norms, and cuts of a block's slice.

mod dropout;
mod linear;
mod norm;

pub use dropout::Dropout;
pub use linear::{Cut, Linear};
pub use norm::{Norm, NormKind, Normed, Statistics};

/// Cuts a slice into parts of these lengths, in order.
///
/// # Panics
/// If the slice is too short.
pub fn cut<R, const N: usize>(mut slice: &[R], lens: [usize; N]) -> [&[R]; N] {
    lens.map(|len| {
        let (part, rest) = slice.split_at(len);
        slice = rest;
        part
    })
}

/// Cuts a slice that changes into parts of these lengths, in order.
///
/// # Panics
/// If the slice is too short.
pub fn cut_mut<R, const N: usize>(mut slice: &mut [R], lens: [usize; N]) -> [&mut [R]; N] {
    lens.map(|len| {
        slice
            .split_off_mut(..len)
            .expect("the slice is as long as its parts")
    })
}
