//! Memory of Python's tensors, borrowed as slices.

use crate::errors::raise;
use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;

/// The bytes of an array that is only read.
pub(crate) fn bytes<'a>(name: &str, array: &'a PyReadonlyArray1<u8>) -> PyResult<&'a [u8]> {
    array.as_slice().map_err(|_| not_contiguous(name))
}

/// The bytes of an array that is written to.
pub(crate) fn bytes_mut<'a>(
    name: &str,
    array: &'a mut PyReadwriteArray1<u8>,
) -> PyResult<&'a mut [u8]> {
    array.as_slice_mut().map_err(|_| not_contiguous(name))
}

fn not_contiguous(name: &str) -> PyErr {
    let message = format!("`{name}`: its memory must be a contiguous array of bytes");
    raise("StateError", &message, None, None)
}
