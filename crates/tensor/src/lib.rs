//! Element types, byte layouts, casts and strided copies.
//!
//! A tensor here is a slice of bytes, a [`DType`] and a shape; there is no tensor type. Elements
//! are little-endian, and no operation reads or writes anything but the slices it is given.
//!
//! | To | Use |
//! |---|---|
//! | name an element type, size a buffer | [`DType`], [`element_count`] |
//! | address a box of elements in a buffer | [`Strided`] |
//! | plan and do a copy between two boxes | [`Runs`] |
//! | fill one target from several threads | [`Bands`] |
//! | change the element type | [`cast`] |
//! | combine buffers element by element | [`reduce_into`], [`finish_average`] |
//! | average many sources, one at a time | [`absorb`], [`Blend`] |
//! | learn what values are like, and how two tensors differ | [`Summary`], [`Histogram`], [`Difference`] |
//! | look at one element | [`read_f64`], [`format_element`] |
//!
//! ```
//! use cairn_tensor::{DType, Runs, Strided};
//!
//! // Columns 1 and 2 of a 2 × 4 matrix of bytes.
//! let source = [1, 2, 3, 4, 5, 6, 7, 8];
//! let columns = Strided::contiguous(&[2, 4]).region(&[0, 1], &[2, 2]).unwrap();
//! let runs = Runs::between(DType::U8, &columns, &Strided::contiguous(&[2, 2]))?;
//! let mut target = [0; 4];
//! runs.copy(&source, &mut target)?;
//! assert_eq!(target, [2, 3, 6, 7]);
//! # Ok::<(), cairn_tensor::Error>(())
//! ```

mod average;
mod bands;
mod blocks;
mod cast;
mod difference;
mod dtype;
mod element;
mod error;
mod histogram;
mod minifloat;
mod reduce;
mod runs;
mod shape;
mod stream;
mod strided;
mod summary;

pub use average::{Blend, Running, Statistic, absorb};
pub use bands::{BAND_BYTES, Bands};
pub use cast::{Overflow, cast};
pub use difference::{Difference, Tolerance};
pub use dtype::DType;
pub use element::{format_element, read_f64};
pub use error::Error;
pub use histogram::Histogram;
pub use reduce::{ReduceOp, finish_average, reduce_into};
pub use runs::{Gather, Gathers, Loop, PARALLEL_THRESHOLD, Run, RunIter, Runs};
pub use shape::{element_count, row_major_strides};
pub use strided::Strided;
pub use summary::Summary;
