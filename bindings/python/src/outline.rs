//! What a rank's state consists of, described once and saved many times.

use crate::errors::OrRaise;
use crate::memory::bytes;
use crate::spec::Spec;
use cairn::checkpoint::State;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use std::sync::Arc;

/// A tensor to save: name, placement, memory, strides in elements if it is not row-major.
type Held<'py> = (
    String,
    Py<Spec>,
    PyReadonlyArray1<'py, u8>,
    Option<Vec<usize>>,
);

/// Names, placements and strides of a rank's tensors: what stays the same from save to save.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Outline {
    inner: Arc<cairn::checkpoint::Outline>,
    /// Which of the tensors this rank holds; the others live elsewhere.
    held: Vec<bool>,
}

#[pymethods]
impl Outline {
    #[new]
    fn new(rank: usize, tensors: Vec<Held>) -> PyResult<Self> {
        let mut state = State::new(rank);
        let mut held = Vec::with_capacity(tensors.len());
        for (name, spec, array, strides) in &tensors {
            let (spec, bytes) = (&spec.get().0, bytes(name, array)?);
            match strides {
                None => state.tensor(name, spec, bytes),
                Some(strides) => state.strided_tensor(name, spec, bytes, strides),
            }
            .or_raise()?;
            held.push(spec.holds(rank));
        }
        Ok(Self {
            inner: state.outline(),
            held,
        })
    }
}

impl Outline {
    /// The state with these tensors in `memory`, one array for each in the order in which they were described.
    pub(crate) fn state<'a>(&self, memory: &'a [PyReadonlyArray1<u8>]) -> PyResult<State<'a>> {
        let held = memory.iter().zip(&self.held).filter(|(_, held)| **held);
        let slices: PyResult<Vec<&[u8]>> = held.map(|(array, _)| bytes("", array)).collect();
        self.inner.state(slices?).or_raise()
    }
}
