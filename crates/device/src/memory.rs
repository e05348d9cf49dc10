//! Bytes that somebody else owns.

use crate::device::{Device, Stream};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Whatever keeps memory alive: a tensor of a framework, an allocation.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// Where memory is.
#[derive(Debug, Clone)]
pub enum Place {
    /// In the address space of the process.
    Host,
    /// On a device, written by the work of a stream.
    Device(Arc<dyn Device>, Stream),
}

/// A range of bytes that somebody else owns, and what keeps it alive.
///
/// Nobody may change the bytes while they are being copied. Who does, gets torn copies.
#[derive(Clone)]
pub struct Memory {
    place: Place,
    address: u64,
    len: usize,
    owner: Owner,
}

impl Memory {
    /// The `len` bytes at `address`.
    ///
    /// # Safety
    /// The bytes are readable at this place for as long as the owner lives.
    pub unsafe fn new(place: Place, address: u64, len: usize, owner: Owner) -> Self {
        Self {
            place,
            address,
            len,
            owner,
        }
    }

    /// The bytes of a shared allocation on the host.
    pub fn shared(bytes: Arc<[u8]>) -> Self {
        let (address, len) = (bytes.as_ptr().expose_provenance() as u64, bytes.len());
        // SAFETY: the allocation is readable, does not move, and is kept by its own owner.
        unsafe { Self::new(Place::Host, address, len, Arc::new(bytes)) }
    }

    /// Bytes on the host that never change.
    pub fn bytes(bytes: bytes::Bytes) -> Self {
        let (address, len) = (bytes.as_ptr().addr() as u64, bytes.len());
        // SAFETY: they lie in an allocation that does not move, and are their own owner.
        unsafe { Self::new(Place::Host, address, len, Arc::new(bytes)) }
    }

    /// Where the bytes are.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The address of the first byte, at its place.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What keeps the bytes alive.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The address of the first byte of a range.
    ///
    /// # Panics
    /// If the range is not inside.
    pub(crate) fn address_of(&self, range: &Range<usize>) -> u64 {
        let inside = range.start <= range.end && range.end <= self.len;
        assert!(inside, "a range inside the memory");
        self.address + range.start as u64
    }

    /// Copies a range of bytes that are on the host into `out`.
    ///
    /// # Panics
    /// If the bytes are on a device, the range is not inside, or `out` has another length.
    pub fn read(&self, range: Range<usize>, out: &mut [u8]) {
        assert!(
            matches!(self.place, Place::Host),
            "the bytes are on a device"
        );
        assert_eq!(range.len(), out.len(), "as many bytes as there is room for");
        let address = self.address_of(&range);
        let source = usize::try_from(address).expect("an address on the host") as *const u8;
        // SAFETY: the range lies in memory that is readable for as long as the owner lives, which `self` holds; `out` is
        // memory of its own.
        unsafe { std::ptr::copy(source, out.as_mut_ptr(), out.len()) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            Place::Host => "host",
            Place::Device(device, _) => device.name(),
        };
        write!(
            formatter,
            "Memory({} bytes at {:#x} on {place})",
            self.len, self.address
        )
    }
}
