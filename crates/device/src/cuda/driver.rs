//! The driver's library, looked for when it is first needed.

use crate::Error;
use cudarc::driver::sys::{self, CUresult};
use std::sync::OnceLock;

/// Every function we call. A driver that lacks one is too old.
const FUNCTIONS: &[&str] = &[
    "cuInit",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuCtxGetStreamPriorityRange",
    "cuStreamCreateWithPriority",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuEventDestroy_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuLaunchKernel",
];

/// Loads the driver's library once and makes it ready.
pub(super) fn ready() -> Result<(), Error> {
    static READY: OnceLock<Result<(), Error>> = OnceLock::new();
    READY.get_or_init(load).clone()
}

fn load() -> Result<(), Error> {
    // SAFETY: loading the driver's library runs its initialisers, as in every program that uses CUDA.
    if !unsafe { sys::is_culib_present() } {
        let reason = "its library, libcuda.so, is not found".to_string();
        return Err(Error::NoDriver { reason });
    }
    // SAFETY: the library was just found; symbols are only looked up.
    let lacks = |name: &&&str| unsafe { sys::culib().get::<*const ()>(name.as_bytes()).is_err() };
    if let Some(name) = FUNCTIONS.iter().find(lacks) {
        let reason = format!("it is too old: it has no `{name}`");
        return Err(Error::Driver { reason });
    }
    // SAFETY: takes no memory of ours.
    let started = unsafe { sys::cuInit(0) };
    match started {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_NO_DEVICE => Err(Error::NoDevice {
            ordinal: 0,
            count: 0,
        }),
        failure => Err(Error::Driver {
            reason: explain(failure),
        }),
    }
}

/// What the driver says of a failure.
pub(super) fn explain(failure: CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the driver points `text` to a string of its own that is never freed, or leaves it null.
    let known = unsafe { sys::cuGetErrorString(failure, &mut text) };
    if known != CUresult::CUDA_SUCCESS || text.is_null() {
        return format!("{failure:?}");
    }
    // SAFETY: the driver's string ends with a zero byte.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    format!("{} ({failure:?})", text.to_string_lossy())
}
