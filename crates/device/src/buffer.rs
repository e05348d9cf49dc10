//! A piece of a slab.

use crate::slab::Slab;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Page-aligned staging memory. The slab it is cut from is freed when the last of its buffers is dropped.
pub struct Buffer {
    slab: Arc<Slab>,
    offset: usize,
    len: usize,
}

impl Buffer {
    /// # Safety
    /// The range lies in the slab, and no other buffer has a byte of it.
    pub(crate) unsafe fn new(slab: Arc<Slab>, offset: usize, len: usize) -> Self {
        Self { slab, offset, len }
    }

    /// Whether a device copies to it at full speed, without the processor.
    pub fn is_pinned(&self) -> bool {
        self.slab.is_pinned()
    }

    /// Whether other processes may see it, too.
    pub fn is_shared(&self) -> bool {
        self.slab.is_shared()
    }

    pub(crate) fn start(&self) -> *mut u8 {
        // SAFETY: the offset lies in the slab's one allocation.
        unsafe { self.slab.start().add(self.offset) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slab is initialised memory that lives as long as `self.slab`, and this range of it is this buffer's alone.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_pinned() {
            "pinned"
        } else {
            "pageable"
        };
        write!(formatter, "Buffer({} {kind} bytes)", self.len)
    }
}
