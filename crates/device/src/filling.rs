//! A buffer that copies are on their way to.

use crate::Error;
use crate::buffer::Buffer;
use crate::device::{Lane, Mark};
use crate::memory::{Memory, Owner};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

/// A buffer that copies from devices are on their way to. First what comes from the host is put in, then copies begin.
///
/// Dropping it waits for the copies.
#[derive(Debug)]
pub struct Filling {
    buffer: ManuallyDrop<Buffer>,
    /// Behind the copies that have begun.
    marks: Vec<Arc<dyn Mark>>,
    /// Whether copies have begun that no mark is behind yet.
    open: bool,
    /// What the copies come from lives at least as long as they take.
    owners: Vec<Owner>,
}

impl Filling {
    /// A buffer that nothing is on its way to.
    pub fn new(buffer: Buffer) -> Self {
        Self {
            buffer: ManuallyDrop::new(buffer),
            marks: Vec::new(),
            open: false,
            owners: Vec::new(),
        }
    }

    /// The bytes, before the first copy begins.
    ///
    /// # Panics
    /// If a copy has begun.
    pub fn host(&mut self) -> &mut [u8] {
        assert!(self.marks.is_empty() && !self.open, "no copy has begun");
        &mut self.buffer
    }

    /// Begins to copy a range of `memory`, which is on the lane's device, to the bytes from `at` on.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// If the range is not inside the memory, or does not fit.
    pub fn fetch(
        &mut self,
        lane: &mut dyn Lane,
        memory: &Memory,
        range: Range<usize>,
        at: usize,
    ) -> Result<(), Error> {
        let fits = at
            .checked_add(range.len())
            .is_some_and(|end| end <= self.buffer.len());
        assert!(fits, "the bytes fit into the buffer");
        let source = memory.address_of(&range);
        if !self
            .owners
            .last()
            .is_some_and(|owner| Arc::ptr_eq(owner, memory.owner()))
        {
            self.owners.push(memory.owner().clone());
        }
        self.open = true;
        // SAFETY: the source is readable for as long as its owner lives, and `self` keeps that. The target is part of the
        // buffer, which nobody looks at before a mark behind the copy is reached: `host` refuses, `finish` and `drop` wait.
        unsafe { lane.fetch(source, self.buffer.start().add(at), range.len()) }
    }

    /// Ends the copies from one lane: what comes to the buffer from it has begun.
    ///
    /// # Errors
    /// If the device fails.
    pub fn close(&mut self, lane: &mut dyn Lane) -> Result<(), Error> {
        self.marks.push(lane.mark()?);
        self.open = false;
        Ok(())
    }

    /// The marks behind all copies.
    pub fn marks(&self) -> &[Arc<dyn Mark>] {
        &self.marks
    }

    /// Waits until everything has arrived.
    ///
    /// # Errors
    /// If a copy failed.
    pub fn finish(mut self) -> Result<Buffer, Error> {
        assert!(!self.open, "every lane was closed");
        for mark in &self.marks {
            mark.wait()?;
        }
        self.marks = Vec::new();
        self.owners = Vec::new();
        // SAFETY: taken once, because `forget` keeps `drop` from seeing it again.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        // Both lists are empty and have no memory, so nothing is lost.
        std::mem::forget(self);
        Ok(buffer)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let arrived = !self.open && self.marks.iter().all(|mark| mark.wait().is_ok());
        if arrived {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        } else {
            // The device may still read and write: memory that is lost does less harm than memory that changes.
            std::mem::forget(std::mem::take(&mut self.owners));
        }
    }
}
