//! Large allocations that buffers are cut from.

use crate::Error;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::system::available_bytes;
use rustix::mm::Advice;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

/// Slabs begin at multiples of this, so that the system can use its large pages: 2 MiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// What a slab leaves to everybody else, so that the system need not end a process: 128 MiB.
const LEFT_BYTES: u64 = 128 << 20;

/// How the memory of a slab is prepared.
#[derive(Debug, Clone, Default)]
pub struct SlabOptions {
    /// The device that copies to it: it is pinned for that one if it allows.
    pub pin: Option<Arc<dyn Device>>,
    /// Threads that touch every page beforehand; 0 leaves that to whoever writes to it first.
    pub prefault_threads: usize,
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Slab {
    start: NonNull<u8>,
    layout: Layout,
    pinned: Option<Arc<dyn Device>>,
}

// SAFETY: a slab is plain memory; its buffers divide it among themselves.
unsafe impl Send for Slab {}
// SAFETY: as above: `Slab` itself reads and writes nothing of it.
unsafe impl Sync for Slab {}

/// Allocates `count` zeroed buffers of `len` bytes in one piece. The second value says why they are not pinned, if they should be and are not.
///
/// # Errors
/// [`Error::NoMemory`] if there is none, or so little that touching it could end the process.
pub fn slab(
    count: usize,
    len: usize,
    options: &SlabOptions,
) -> Result<(Vec<Buffer>, Option<Error>), Error> {
    let total = count.saturating_mul(len);
    let refused = || Error::NoMemory { len_bytes: total };
    let layout = Layout::from_size_align(total, HUGE_PAGE_BYTES).map_err(|_| refused())?;
    if total == 0 {
        return Ok((Vec::new(), None));
    }
    // The system would promise it all the same.
    if available_bytes().is_some_and(|bytes| (total as u64).saturating_add(LEFT_BYTES) > bytes) {
        return Err(refused());
    }
    // SAFETY: the layout is not empty.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
    let mut slab = Slab {
        start,
        layout,
        pinned: None,
    };
    // Without them the slab has small pages.
    slab.advise(0, total, Advice::LinuxHugepage);
    let threads = match (&options.pin, options.prefault_threads) {
        (Some(_), threads) => threads.max(1),
        (None, threads) => threads,
    };
    slab.prefault(threads);
    let refusal = options
        .pin
        .as_ref()
        .and_then(|device| slab.pin(device).err());
    let slab = Arc::new(slab);
    // SAFETY: the ranges lie in the slab and do not meet.
    let buffer = |index| unsafe { Buffer::new(slab.clone(), index * len, len) };
    Ok(((0..count).map(buffer).collect(), refusal))
}

impl Slab {
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Has the system find memory for every page now, on several threads: most of what pinning costs.
    fn prefault(&self, threads: usize) {
        let total = self.layout.size();
        let share = total
            .div_ceil(threads.max(1))
            .next_multiple_of(HUGE_PAGE_BYTES);
        thread::scope(|scope| {
            for begin in (0..total).step_by(share).take(threads) {
                let len = share.min(total - begin);
                // Where the system does not know this, pages come when they are first written to.
                scope.spawn(move || self.advise(begin, len, Advice::LinuxPopulateWrite));
            }
        });
    }

    /// Gives the system advice about a range, which it need not take.
    fn advise(&self, begin: usize, len: usize, advice: Advice) {
        if cfg!(miri) {
            // It runs this crate's tests, and takes none.
            return;
        }
        // SAFETY: the range lies in the slab, and neither advice changes its contents.
        let _ = unsafe { rustix::mm::madvise(self.start().add(begin).cast(), len, advice) };
    }

    fn pin(&mut self, device: &Arc<dyn Device>) -> Result<(), Error> {
        // SAFETY: the memory stays where it is until `drop`, which takes this back first.
        unsafe { device.pin(self.start(), self.layout.size()) }?;
        self.pinned = Some(device.clone());
        Ok(())
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(device) = &self.pinned {
            // SAFETY: it was pinned, and buffers are dropped only when no copy to them is under way.
            unsafe { device.unpin(self.start()) };
        }
        // SAFETY: allocated with this layout, and the last buffer is gone.
        unsafe { dealloc(self.start(), self.layout) };
    }
}
