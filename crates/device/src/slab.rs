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
    len: usize,
    origin: Origin,
    pinned: Option<Arc<dyn Device>>,
}

/// Where the memory of a slab comes from, and goes back to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// The allocator.
    Heap(Layout),
    /// A mapping that other processes may have, too.
    Mapping,
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
    if !is_available(total as u64) {
        return Err(refused());
    }
    // SAFETY: the layout is not empty.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
    // SAFETY: allocated with this layout, and nobody else's.
    let mut slab = unsafe { Slab::new(start, total, Origin::Heap(layout)) };
    let refusal = slab.prepare(options);
    Ok((Slab::cut(&Arc::new(slab), len), refusal))
}

/// Whether so much memory can be touched without ending a process: the system would promise it all the same.
pub(crate) fn is_available(len_bytes: u64) -> bool {
    available_bytes().is_none_or(|bytes| len_bytes.saturating_add(LEFT_BYTES) <= bytes)
}

impl Slab {
    /// # Safety
    /// The `len` bytes from `start` on are initialised memory of this origin, and the slab's alone.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize, origin: Origin) -> Self {
        Self {
            start,
            len,
            origin,
            pinned: None,
        }
    }

    /// Gives the memory large pages, finds it beforehand, and pins it, as far as asked. Returns why it is not pinned, if it should be.
    pub(crate) fn prepare(&mut self, options: &SlabOptions) -> Option<Error> {
        // Without them the slab has small pages.
        self.advise(0, self.len, Advice::LinuxHugepage);
        let threads = match (&options.pin, options.prefault_threads) {
            (Some(_), threads) => threads.max(1),
            (None, threads) => threads,
        };
        self.prefault(threads);
        let device = options.pin.as_ref()?;
        self.pin(device).err()
    }

    /// Divides a slab that has no buffers yet into buffers of `len` bytes.
    pub(crate) fn cut(slab: &Arc<Self>, len: usize) -> Vec<Buffer> {
        let count = slab.len.checked_div(len).unwrap_or(0);
        // SAFETY: the ranges lie in the slab and do not meet.
        let buffer = |index| unsafe { Buffer::new(slab.clone(), index * len, len) };
        (0..count).map(buffer).collect()
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.origin, Origin::Mapping)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Has the system find memory for every page now, on several threads: most of what pinning costs.
    fn prefault(&self, threads: usize) {
        let total = self.len;
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
        unsafe { device.pin(self.start(), self.len) }?;
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
        match self.origin {
            // SAFETY: allocated with this layout, and the last buffer is gone.
            Origin::Heap(layout) => unsafe { dealloc(self.start(), layout) },
            Origin::Mapping => {
                // SAFETY: the whole of the mapping, and the last buffer is gone.
                let _ = unsafe { rustix::mm::munmap(self.start().cast(), self.len) };
            }
        }
    }
}
