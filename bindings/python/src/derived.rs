//! Whether tensors in memory are casts of others.

use crate::memory::bytes;
use crate::spec::parse_dtype;
use cairn::checkpoint::{Claim, hold};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// Which of the claims (source of type f32, target, type of the target) hold on every element.
#[pyfunction]
pub(crate) fn casts_hold(
    py: Python,
    claims: Vec<(PyReadonlyArray1<u8>, PyReadonlyArray1<u8>, String)>,
) -> PyResult<Vec<bool>> {
    let claims = claims.iter().map(|(source, target, dtype)| {
        Ok(Claim {
            source: bytes("source", source)?,
            target: bytes("target", target)?,
            dtype: parse_dtype(dtype)?,
        })
    });
    let claims = claims.collect::<PyResult<Vec<Claim>>>()?;
    Ok(py.detach(|| hold(&claims)))
}
