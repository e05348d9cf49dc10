//! A GPU, seen through the context that the framework in this process uses.

use super::driver;
use super::events::Events;
use super::lane::CudaLane;
use crate::device::{Device, Lane};
use crate::memory::Owner;
use crate::{Error, cuda::pack::Kernel};
use cudarc::driver::sys::{self, CUcontext, CUresult, CUstream, CUstreamCaptureMode};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Pinned memory that every context may use.
const PORTABLE: u32 = 1;
/// A stream that does not wait for the legacy default stream.
const NON_BLOCKING: u32 = 1;

/// A GPU.
#[derive(Debug)]
pub(super) struct Cuda {
    name: String,
    context: CUcontext,
    /// The one stream all our copies run on.
    pub(super) stream: CUstream,
    pub(super) events: Arc<Events>,
    pub(super) kernel: OnceLock<Result<Kernel, Error>>,
}

// SAFETY: contexts and streams of the driver may be used from every thread; calls push the context first.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

/// A context made current on this thread for as long as this lives, whatever the framework captures in a graph meanwhile on another.
pub(super) struct Current {
    /// What the thread was allowed before.
    mode: CUstreamCaptureMode,
}

/// The GPU that the driver counts as number `ordinal`.
///
/// # Errors
/// If there is no driver, it cannot be used, or it has no such device.
pub fn device(ordinal: usize) -> Result<Arc<dyn Device>, Error> {
    static OPEN: Mutex<BTreeMap<usize, Arc<Cuda>>> = Mutex::new(BTreeMap::new());
    driver::ready()?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cuda) = open.get(&ordinal) {
        return Ok(cuda.clone());
    }
    let cuda = Arc::new(Cuda::open(ordinal)?);
    open.insert(ordinal, cuda.clone());
    Ok(cuda)
}

impl Cuda {
    fn open(ordinal: usize) -> Result<Self, Error> {
        let name = format!("cuda:{ordinal}");
        let mut count: c_int = 0;
        // SAFETY: writes one number.
        check(&name, "count devices", unsafe {
            sys::cuDeviceGetCount(&mut count)
        })?;
        let count = usize::try_from(count).unwrap_or(0);
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        let number = c_int::try_from(ordinal).expect("fewer devices than numbers");
        let mut handle = 0;
        // SAFETY: writes one number.
        check(&name, "open it", unsafe {
            sys::cuDeviceGet(&mut handle, number)
        })?;
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle. The context is the one the framework uses, and stays until the process ends.
        let kept = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, handle) };
        check(&name, "use its context", kept)?;
        let current = Current::push(&name, context)?;
        let stream = low_priority_stream(&name)?;
        drop(current);
        Ok(Self {
            name,
            context,
            stream,
            events: Arc::default(),
            kernel: OnceLock::new(),
        })
    }

    /// Makes the device current on this thread for as long as the result lives; calls inside are quicker.
    pub(super) fn enter(&self) -> Result<Current, Error> {
        Current::push(&self.name, self.context)
    }

    /// Looks at what a call said, with the device current on this thread.
    pub(super) fn call(
        &self,
        doing: &'static str,
        call: impl FnOnce() -> CUresult,
    ) -> Result<(), Error> {
        let _current = self.enter()?;
        check(&self.name, doing, call())
    }
}

impl Device for Cuda {
    fn name(&self) -> &str {
        &self.name
    }

    fn warm_up(&self) -> Result<(), Error> {
        let kernel = self.kernel.get_or_init(|| Kernel::load(self));
        kernel.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        Ok(Box::new(CudaLane::new(self)))
    }

    fn allocate(self: Arc<Self>, len: usize) -> Result<(u64, Owner), Error> {
        let mut address = 0;
        // SAFETY: writes one address.
        let allocated = self.call("allocate", || unsafe {
            sys::cuMemAlloc_v2(&mut address, len)
        });
        allocated.map_err(|_| Error::NoScratch {
            device: self.name.clone(),
            len_bytes: len,
        })?;
        let owner = Allocation {
            cuda: self,
            address,
        };
        Ok((address, Arc::new(owner)))
    }

    unsafe fn pin(&self, address: *mut u8, len: usize) -> Result<(), Error> {
        // SAFETY: the caller keeps the memory in place until `unpin`.
        self.call("pin host memory", || unsafe {
            sys::cuMemHostRegister_v2(address.cast(), len, PORTABLE)
        })
    }

    unsafe fn unpin(&self, address: *mut u8) {
        // SAFETY: the caller pinned it, and nothing is copied to it any more. When the process ends the driver may be gone.
        let _ = self.call("release host memory", || unsafe {
            sys::cuMemHostUnregister(address.cast())
        });
    }
}

struct Allocation {
    cuda: Arc<Cuda>,
    address: u64,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once; the driver waits for work that uses it.
        let _ = self
            .cuda
            .call("free", || unsafe { sys::cuMemFree_v2(self.address) });
    }
}

impl Current {
    fn push(name: &str, context: CUcontext) -> Result<Self, Error> {
        // SAFETY: the context lives until the process ends.
        check(name, "make it current", unsafe {
            sys::cuCtxPushCurrent_v2(context)
        })?;
        let mut current = Self {
            // Otherwise memory could not be pinned while somebody captures a graph, and the attempt would spoil the graph. Nothing of ours goes into it.
            mode: CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        check(name, "stay out of graphs", current.exchange_mode())?;
        Ok(current)
    }

    /// Sets the mode of this thread, and keeps the one it had.
    fn exchange_mode(&mut self) -> CUresult {
        // SAFETY: reads and writes one number.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.mode) }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let _ = self.exchange_mode();
        let mut context = std::ptr::null_mut();
        // SAFETY: takes back what `push` did on this thread.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut context) };
    }
}

/// A stream whose work gives way to the framework's.
fn low_priority_stream(name: &str) -> Result<CUstream, Error> {
    let (mut lowest, mut highest) = (0, 0);
    let mut stream = std::ptr::null_mut();
    // SAFETY: these write two numbers and one handle.
    unsafe {
        let range = sys::cuCtxGetStreamPriorityRange(&mut lowest, &mut highest);
        check(name, "ask for priorities", range)?;
        let made = sys::cuStreamCreateWithPriority(&mut stream, NON_BLOCKING, lowest);
        check(name, "make a stream", made)?;
    }
    Ok(stream)
}

pub(super) fn check(device: &str, doing: &'static str, result: CUresult) -> Result<(), Error> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        failure => Err(Error::Call {
            device: device.to_string(),
            doing,
            reason: driver::explain(failure),
        }),
    }
}
