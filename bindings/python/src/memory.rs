//! Memory of Python's tensors, borrowed as slices.

use crate::errors::raise;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;

/// The memory of a state's tensors: handed over once, and saved as often as it is found where it was.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Memory(Vec<Py<PyArray1<u8>>>);

#[pymethods]
impl Memory {
    #[new]
    fn new(arrays: Vec<Py<PyArray1<u8>>>) -> Self {
        Self(arrays)
    }
}

impl Memory {
    /// The arrays, to be read.
    pub(crate) fn borrow<'py>(&self, py: Python<'py>) -> PyResult<Vec<PyReadonlyArray1<'py, u8>>> {
        let arrays = self.0.iter().map(|array| array.bind(py).try_readonly());
        arrays.collect::<Result<_, _>>().map_err(PyErr::from)
    }
}

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
