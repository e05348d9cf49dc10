//! The queue of copies beside a framework's work on a GPU.

use super::context::{Cuda, check};
use super::events::{Event, handle_of};
use super::pack::Table;
use crate::Error;
use crate::device::{Device, DeviceCopy, Lane, Mark, Stream};
use cudarc::driver::sys;
use std::sync::Arc;

/// Copies up to this length go through one kernel together; longer ones are worth a call each.
const SMALL_BYTES: usize = 64 << 10;

/// Our stream of one GPU.
#[derive(Debug)]
pub(super) struct CudaLane {
    cuda: Arc<Cuda>,
    table: Option<Table>,
}

impl CudaLane {
    pub(super) fn new(cuda: Arc<Cuda>) -> Self {
        Self { cuda, table: None }
    }

    fn copy_small(&mut self, copies: &[DeviceCopy]) -> Result<(), Error> {
        let cuda = self.cuda.clone();
        let kernel = cuda.kernel.get_or_init(|| super::pack::Kernel::load(&cuda));
        let kernel = kernel.as_ref().map_err(Clone::clone)?;
        let table = match self.table.take() {
            Some(table) if table.capacity() >= copies.len() => table,
            _ => Table::new(&cuda, copies.len())?,
        };
        let table = self.table.insert(table);
        table.fill(copies)?;
        // SAFETY: the caller vouches for the copies, and the table is not changed before this launch is over.
        unsafe { kernel.launch(&cuda, table, copies.len()) }?;
        table.used_until(Event::record(&cuda, cuda.stream)?);
        Ok(())
    }
}

impl Lane for CudaLane {
    fn follow(&mut self, stream: Stream) -> Result<(), Error> {
        Event::record(&self.cuda, handle_of(stream))?.hold_stream(self.cuda.stream)
    }

    unsafe fn pack(&mut self, copies: &[DeviceCopy]) -> Result<(), Error> {
        let is_small = |copy: &&DeviceCopy| copy.len <= SMALL_BYTES;
        let small: Vec<DeviceCopy> = copies.iter().filter(is_small).copied().collect();
        if !small.is_empty() {
            self.copy_small(&small)?;
        }
        let _current = self.cuda.enter()?;
        for copy in copies.iter().filter(|copy| !is_small(copy)) {
            // SAFETY: the caller vouches for both ends.
            let begun = unsafe {
                sys::cuMemcpyDtoDAsync_v2(copy.target, copy.source, copy.len, self.cuda.stream)
            };
            check(self.cuda.name(), "copy inside it", begun)?;
        }
        Ok(())
    }

    unsafe fn fetch(&mut self, source: u64, target: *mut u8, len: usize) -> Result<(), Error> {
        // SAFETY: the caller vouches for both ends.
        self.cuda.call("copy to the host", || unsafe {
            sys::cuMemcpyDtoHAsync_v2(target.cast(), source, len, self.cuda.stream)
        })
    }

    fn mark(&mut self) -> Result<Arc<dyn Mark>, Error> {
        Ok(Arc::new(Event::record(&self.cuda, self.cuda.stream)?))
    }
}
