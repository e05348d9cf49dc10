//! Memory of Python's tensors: borrowed as slices on the host, shared by address on a device, or promised.

#![allow(
    unsafe_code,
    clippy::allow_attributes,
    reason = "Python gives addresses on a device as numbers"
)]

use crate::errors::{OrRaise, raise};
use cairn::checkpoint::Bytes;
use cairn::device::{self, Owner, Place, Stream};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The memory of a state's tensors: handed over once, and saved as often as it is found where it was.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Memory(Vec<Held>);

/// The memory of one tensor.
enum Held {
    Host(Py<PyArray1<u8>>),
    Device(OnDevice),
    Promised(cairn::checkpoint::Promise),
}

/// Memory on the host that Python is about to have ready.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Promise(cairn::checkpoint::Promise);

#[pymethods]
impl Promise {
    #[new]
    fn new(len_bytes: usize) -> Self {
        Self(cairn::checkpoint::Promise::new(len_bytes))
    }

    /// How much it is, by the name that arrays have for it.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.len()
    }

    /// Keeps the promise with memory that stays as it is from now on.
    fn keep(&self, array: &Bound<PyArray1<u8>>) -> PyResult<()> {
        let read = array.try_readonly()?;
        let slice = bytes("", &read)?;
        if slice.len() != self.0.len() {
            let (promised, given) = (self.0.len(), slice.len());
            let message = format!("{promised} bytes were promised, and {given} are there");
            return Err(raise("StateError", &message, None, None));
        }
        let (address, len) = (slice.as_ptr().addr() as u64, slice.len());
        let owner: Owner = Arc::new(PyOwner(Some(array.clone().into_any().unbind())));
        // SAFETY: the array owns the memory and is its owner here, and whoever promised it leaves it as it is.
        let memory = unsafe { device::Memory::new(Place::Host, address, len, owner) };
        self.0.keep(Ok(memory));
        Ok(())
    }

    /// Says why the promise cannot be kept.
    fn fail(&self, reason: String) {
        self.0.keep(Err(reason));
    }
}

/// Memory on a device: its number, address and length, whether it stays as it is until a fence, and in which turn it may change.
#[derive(FromPyObject, Clone)]
struct OnDevice {
    device: usize,
    address: u64,
    len_bytes: usize,
    fenced: bool,
    turn: u32,
}

/// The memory of a state's tensors, for the time of a call.
pub(crate) struct Borrowed<'py>(Vec<Loan<'py>>);

enum Loan<'py> {
    Host(PyReadonlyArray1<'py, u8>),
    Kept(Bytes<'static>),
}

#[pymethods]
impl Memory {
    #[new]
    fn new(memory: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let held = memory.into_iter().map(|one| {
            match (one.cast::<PyArray1<u8>>(), one.cast::<Promise>()) {
                (Ok(array), _) => Ok(Held::Host(array.clone().unbind())),
                (_, Ok(promise)) => Ok(Held::Promised(promise.get().0.clone())),
                _ => one.extract().map(Held::Device),
            }
        });
        held.collect::<PyResult<_>>().map(Self)
    }
}

impl Memory {
    /// The memory, to be read. `owners` live until what is on devices was captured, behind the work of each device's stream.
    pub(crate) fn borrow<'py>(
        &self,
        py: Python<'py>,
        streams: &BTreeMap<usize, u64>,
        owners: Py<PyAny>,
    ) -> PyResult<Borrowed<'py>> {
        let owner: Owner = Arc::new(PyOwner(Some(owners)));
        let loans = self.0.iter().map(|held| match held {
            Held::Host(array) => Ok(Loan::Host(array.bind(py).try_readonly()?)),
            Held::Device(held) => Ok(Loan::Kept(held.bytes(streams, &owner)?)),
            Held::Promised(promise) => Ok(Loan::Kept(Bytes::Promised(promise.clone()))),
        });
        loans.collect::<PyResult<_>>().map(Borrowed)
    }
}

impl Borrowed<'_> {
    /// The bytes of each tensor.
    pub(crate) fn bytes(&self) -> PyResult<Vec<Bytes<'_>>> {
        let bytes = self.0.iter().map(|loan| match loan {
            Loan::Host(array) => bytes("", array).map(Bytes::Borrowed),
            Loan::Kept(bytes) => Ok(bytes.clone()),
        });
        bytes.collect()
    }
}

impl OnDevice {
    fn bytes(&self, streams: &BTreeMap<usize, u64>, owner: &Owner) -> PyResult<Bytes<'static>> {
        let device = device::cuda::device(self.device).or_raise()?;
        let stream = Stream(streams.get(&self.device).copied().unwrap_or_default());
        let place = Place::Device(device, stream);
        // SAFETY: the adapter takes address and length from a tensor of this device, and that tensor is among the owners.
        let memory =
            unsafe { device::Memory::new(place, self.address, self.len_bytes, owner.clone()) };
        Ok(match self.fenced {
            true => Bytes::Fenced(memory, self.turn),
            false => Bytes::Shared(memory),
        })
    }
}

/// Tensors of Python that a thread of ours keeps, and lets go as Python wants it.
struct PyOwner(Option<Py<PyAny>>);

impl Drop for PyOwner {
    fn drop(&mut self) {
        let mut owners = self.0.take();
        Python::try_attach(|_| drop(owners.take()));
        // Without an interpreter there is nobody left to own anything.
        std::mem::forget(owners);
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
