//! What a device with memory of its own has to offer.

use crate::Error;
use crate::memory::Owner;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A queue of a framework's work on a device, by the number the device's driver knows it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Stream(pub u64);

/// A device with memory of its own.
pub trait Device: Debug + Send + Sync {
    /// What it is called: `cuda:0`.
    fn name(&self) -> &str;

    /// Does beforehand what the first copy would have to wait for.
    ///
    /// # Errors
    /// If the device fails.
    fn warm_up(&self) -> Result<(), Error>;

    /// The lane of copies beside the framework's work. All of a process's copies from this device go through it, in order.
    ///
    /// # Errors
    /// If the device fails.
    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error>;

    /// Allocates memory on the device, which is freed when its owner is dropped: its address and its owner.
    ///
    /// # Errors
    /// [`Error::NoScratch`] if there is not enough.
    fn allocate(self: Arc<Self>, len: usize) -> Result<(u64, Owner), Error>;

    /// Makes host memory fast to copy to, until [`Device::unpin`].
    ///
    /// # Safety
    /// The memory stays where it is until then.
    ///
    /// # Errors
    /// If the system refuses.
    unsafe fn pin(&self, address: *mut u8, len: usize) -> Result<(), Error>;

    /// Takes [`Device::pin`] back.
    ///
    /// # Safety
    /// The memory was pinned, and no copy to it is under way.
    unsafe fn unpin(&self, address: *mut u8);
}

/// A copy inside a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCopy {
    /// Where the bytes are.
    pub source: u64,
    /// Where they go.
    pub target: u64,
    /// How many.
    pub len: usize,
}

/// A device's queue of copies, which run one after another beside the framework's work.
pub trait Lane: Debug + Send {
    /// Lets everything from here on begin after what `stream` has been given so far.
    ///
    /// # Errors
    /// If the device fails.
    fn follow(&mut self, stream: Stream) -> Result<(), Error>;

    /// Copies inside the device.
    ///
    /// # Safety
    /// Sources stay readable, and targets are nobody else's, until a mark behind this one is reached.
    ///
    /// # Errors
    /// If the device fails.
    unsafe fn pack(&mut self, copies: &[DeviceCopy]) -> Result<(), Error>;

    /// Copies `len` bytes from the device to the host.
    ///
    /// # Safety
    /// The source stays readable, and the target stays in place and is nobody else's, until a mark behind this one is reached.
    ///
    /// # Errors
    /// If the device fails.
    unsafe fn fetch(&mut self, source: u64, target: *mut u8, len: usize) -> Result<(), Error>;

    /// A place in the queue: reached when everything before it is done.
    ///
    /// # Errors
    /// If the device fails.
    fn mark(&mut self) -> Result<Arc<dyn Mark>, Error>;
}

/// A place in a lane.
pub trait Mark: Debug + Send + Sync {
    /// Waits until everything before it is done.
    ///
    /// # Errors
    /// If something before it failed.
    fn wait(&self) -> Result<(), Error>;

    /// Makes later work of `stream` wait for it, on the device: the caller goes on.
    ///
    /// # Errors
    /// If the device fails.
    fn hold(&self, stream: Stream) -> Result<(), Error>;

    /// The device's time between an `earlier` mark of the same lane and this one, if both are reached and it keeps time.
    fn since(&self, earlier: &dyn Mark) -> Option<Duration>;

    /// For implementations to know their own.
    fn as_any(&self) -> &dyn std::any::Any;
}
