//! Memory of others, copied in the background while they go on.
//!
//! A training state lies in memory that its owner will change again: tensors of a framework, on the host or on a device. This
//! crate copies such memory into buffers of its own, in the order of the owner's work, without making the owner wait:
//!
//! ```text
//!  producer's stream   ──▶ step n ──┬────────── forward, backward ───────────┬─▶ step n+1 changes the tensors
//!                                   │ follow                            hold │
//!  lane                             └──▶ pack ─▶ copy ─▶ copy ─▶ … ─▶ mark ──┘
//!  host                                         buffer  buffer                     written while the copies go on
//! ```
//!
//! * [`Memory`] is a range of bytes somebody else owns, and what keeps it alive.
//! * [`Device`] is where memory is when it is not on the host; [`Lane`] is its queue of copies, [`Mark`] a place in that queue.
//! * [`Filling`] is a buffer that copies are on their way to; [`Filling::finish`] gives the [`Buffer`] once they have arrived.
//! * [`Scratch`] is memory on the device that takes copies first, where there is some to spare.
//! * [`Meeting`] is where threads read what others lend, without a copy.
//! * [`system`] tells how much memory there is.
//! * [`Buffer`]s come from slabs of page-aligned memory, pinned for a device if it allows.
//! * [`SharedMemory`] is memory that several processes see and that outlives each of them; its [`Mapping`] is cut into buffers, too.
//!
//! [`cuda::device`] opens NVIDIA GPUs through the driver's library, which is looked for when it is first needed: one program
//! runs on machines with and without it.
//!
//! This is the one crate with unsafe code: addresses that come from elsewhere, slices of other threads, and calls of the driver. Who makes a [`Memory`]
//! promises that it is there; everything after that is safe.

#![allow(
    unsafe_code,
    clippy::allow_attributes,
    reason = "raw memory and the driver's functions are what this crate wraps"
)]

mod background;
mod buffer;
pub mod cuda;
mod device;
mod error;
mod filling;
mod meeting;
mod memory;
mod scratch;
mod shared;
mod slab;
pub mod system;
#[cfg(feature = "testing")]
pub mod testing;

pub use background::yield_to_others;
pub use buffer::Buffer;
pub use device::{Device, DeviceCopy, Lane, Mark, Stream};
pub use error::Error;
pub use filling::Filling;
pub use meeting::{Meeting, Missed};
pub use memory::{Memory, Owner, Place};
pub use scratch::{Packing, Scratch};
pub use shared::{Mapping, SharedMemory};
pub use slab::{SlabOptions, slab};
