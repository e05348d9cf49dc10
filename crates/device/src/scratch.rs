//! Memory on a device that takes copies before they go to the host.

use crate::Error;
use crate::device::{Device, DeviceCopy, Lane, Mark, Stream};
use crate::memory::{Memory, Owner, Place};
use std::ops::Range;
use std::sync::Arc;

/// Memory of ours on a device. What lies in it changes only by [`Packing`].
#[derive(Debug, Clone)]
pub struct Scratch(Memory);

/// Copies into scratch memory that are about to begin together.
#[derive(Debug)]
pub struct Packing<'a> {
    scratch: &'a Scratch,
    copies: Vec<DeviceCopy>,
    owners: Vec<Owner>,
}

/// Keeps what copies come from until they are done.
struct Held {
    mark: Arc<dyn Mark>,
    owners: Vec<Owner>,
}

impl Scratch {
    /// Allocates `len` bytes.
    ///
    /// # Errors
    /// [`Error::NoScratch`] if the device has no room.
    pub fn new(device: &Arc<dyn Device>, len: usize) -> Result<Self, Error> {
        let (address, owner) = device.clone().allocate(len)?;
        let place = Place::Device(device.clone(), Stream::default());
        // SAFETY: the device's own allocation, kept by its owner.
        Ok(Self(unsafe { Memory::new(place, address, len, owner) }))
    }

    /// The memory, to copy from.
    pub fn memory(&self) -> &Memory {
        &self.0
    }

    /// Copies into it.
    pub fn packing(&self) -> Packing<'_> {
        Packing {
            scratch: self,
            copies: Vec::new(),
            owners: Vec::new(),
        }
    }
}

impl Packing<'_> {
    /// Adds the copy of a range of `memory`, on the same device, to the scratch bytes from `at` on.
    ///
    /// # Panics
    /// If the range is not inside the memory, or does not fit into the scratch.
    pub fn add(&mut self, memory: &Memory, range: Range<usize>, at: usize) {
        let (source, len) = (memory.address_of(&range), range.len());
        let end = at.checked_add(len).expect("a range of bytes has an end");
        let target = self.scratch.0.address_of(&(at..end));
        self.copies.push(DeviceCopy {
            source,
            target,
            len,
        });
        if !self
            .owners
            .last()
            .is_some_and(|owner| Arc::ptr_eq(owner, memory.owner()))
        {
            self.owners.push(memory.owner().clone());
        }
    }

    /// Begins the copies on `lane`. What they come from is kept until the returned owner is dropped, which waits for them.
    ///
    /// # Errors
    /// If the device fails.
    pub fn begin(self, lane: &mut dyn Lane) -> Result<(Arc<dyn Mark>, Owner), Error> {
        // SAFETY: sources live as long as their owners, which `Held` keeps until the mark is reached. Targets lie in the
        // scratch, which only packing writes to, and packings of a lane run one after another.
        unsafe { lane.pack(&self.copies) }?;
        let mark = lane.mark()?;
        let mut owners = self.owners;
        owners.push(self.scratch.0.owner().clone());
        let held = Held {
            mark: mark.clone(),
            owners,
        };
        Ok((mark, Arc::new(held)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.mark.wait().is_err() {
            // The device may still read: memory that is lost does less harm than memory that is another's.
            std::mem::forget(std::mem::take(&mut self.owners));
        }
    }
}
