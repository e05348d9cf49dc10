//! What a rank's state consists of, described once and saved many times.

use crate::errors::OrRaise;
use crate::memory::Borrowed;
use crate::spec::{Spec, parse_dtype};
use cairn::checkpoint::State;
use pyo3::prelude::*;
use std::sync::Arc;

/// A tensor to save: name, placement, length in bytes, strides in elements if it is not row-major.
type Described = (String, Py<Spec>, usize, Option<Vec<usize>>);

/// Names, placements and strides of a rank's tensors: what stays the same from save to save.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Outline {
    inner: Arc<cairn::checkpoint::Outline>,
    /// Which of the tensors this rank holds; the others live elsewhere.
    held: Vec<bool>,
}

#[pymethods]
impl Outline {
    /// `derived`: the tensors that are not stored, by name, type and the tensor they are the cast of.
    #[new]
    #[pyo3(signature = (rank, tensors, derived = Vec::new()))]
    fn new(
        rank: usize,
        tensors: Vec<Described>,
        derived: Vec<(String, String, String)>,
    ) -> PyResult<Self> {
        let mut outline = cairn::checkpoint::Outline::new(rank);
        let mut held = Vec::with_capacity(tensors.len());
        for (name, spec, len_bytes, strides) in tensors {
            let described = outline.describe(&name, &spec.get().0, len_bytes, strides);
            held.push(described.or_raise()?);
        }
        for (name, dtype, of) in derived {
            outline
                .derive(&name, parse_dtype(&dtype)?, &of)
                .or_raise()?;
        }
        Ok(Self {
            inner: Arc::new(outline),
            held,
        })
    }
}

impl Outline {
    pub(crate) fn inner(&self) -> &Arc<cairn::checkpoint::Outline> {
        &self.inner
    }

    /// The state with these tensors in `memory`, in the order in which they were described.
    pub(crate) fn state<'a>(&self, memory: &'a Borrowed<'_>) -> PyResult<State<'a>> {
        let held = memory.bytes()?.into_iter().zip(&self.held);
        let held = held.filter(|(_, held)| **held).map(|(bytes, _)| bytes);
        self.inner.state(held).or_raise()
    }
}
