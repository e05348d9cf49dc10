//! Many small copies inside a GPU as one launch of one kernel.

use super::context::Cuda;
use super::events::Event;
use crate::Error;
use crate::device::{DeviceCopy, Mark};
use cudarc::driver::sys::{self, CUfunction};
use std::ffi::c_void;
use std::sync::Arc;

/// The kernel: block `b` does copy `b` of the table, by the widest unit that source, target and length allow.
///
/// It is text for the driver to compile, so it runs on every GPU from compute capability 5.0 on.
const PTX: &str = concat!(include_str!("pack.ptx"), "\0");
const THREADS: u32 = 256;
/// Source, target and length, as the kernel reads them.
const ENTRY_BYTES: usize = 24;

/// The kernel, loaded.
#[derive(Debug)]
pub(super) struct Kernel(CUfunction);

// SAFETY: functions of the driver may be used from every thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// What is to be copied, in pinned memory that the kernel reads itself.
#[derive(Debug)]
pub(super) struct Table {
    cuda: Arc<Cuda>,
    start: *mut u64,
    capacity: usize,
    busy: Option<Event>,
}

// SAFETY: the memory is this table's alone.
unsafe impl Send for Table {}

impl Kernel {
    pub(super) fn load(cuda: &Cuda) -> Result<Self, Error> {
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the text ends with a zero byte, and the module stays until the process ends.
        cuda.call("load the packing kernel", || unsafe {
            sys::cuModuleLoadData(&mut module, PTX.as_ptr().cast())
        })?;
        // SAFETY: the module was loaded.
        cuda.call("find the packing kernel", || unsafe {
            sys::cuModuleGetFunction(&mut function, module, c"pack".as_ptr())
        })?;
        Ok(Self(function))
    }

    /// # Safety
    /// The first `count` entries of the table describe copies whose ends are there until the launch is over.
    pub(super) unsafe fn launch(
        &self,
        cuda: &Cuda,
        table: &Table,
        count: usize,
    ) -> Result<(), Error> {
        let mut address = table.start.addr() as u64;
        let mut parameters: [*mut c_void; 1] = [(&raw mut address).cast()];
        let blocks = u32::try_from(count).expect("fewer small copies than blocks of a launch");
        // SAFETY: the kernel has one parameter, which is read during this call.
        cuda.call("launch the packing kernel", || unsafe {
            sys::cuLaunchKernel(
                self.0,
                blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                cuda.stream,
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }
}

impl Table {
    pub(super) fn new(cuda: &Arc<Cuda>, capacity: usize) -> Result<Self, Error> {
        let mut start = std::ptr::null_mut();
        // SAFETY: writes one address.
        cuda.call("allocate pinned memory", || unsafe {
            sys::cuMemHostAlloc(&mut start, capacity * ENTRY_BYTES, 0)
        })?;
        Ok(Self {
            cuda: cuda.clone(),
            start: start.cast(),
            capacity,
            busy: None,
        })
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Puts the copies in, when the launch before has read the ones before.
    pub(super) fn fill(&mut self, copies: &[DeviceCopy]) -> Result<(), Error> {
        if let Some(busy) = self.busy.take() {
            busy.wait()?;
        }
        assert!(copies.len() <= self.capacity, "the table has room");
        for (index, copy) in copies.iter().enumerate() {
            // SAFETY: the entry lies in the table, which no launch reads now.
            unsafe {
                let entry = self.start.add(3 * index);
                entry.write(copy.source);
                entry.add(1).write(copy.target);
                entry.add(2).write(copy.len as u64);
            }
        }
        Ok(())
    }

    pub(super) fn used_until(&mut self, event: Event) {
        self.busy = Some(event);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.busy.take().is_some_and(|busy| busy.wait().is_err()) {
            // A launch may still read it.
            return;
        }
        let start = self.start;
        // SAFETY: allocated once, freed once, read by nobody.
        let _ = self.cuda.call("free pinned memory", || unsafe {
            sys::cuMemFreeHost(start.cast())
        });
    }
}
