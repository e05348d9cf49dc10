//! NVIDIA GPUs, through the driver's library.

mod context;
mod driver;
mod events;
mod lane;
mod pack;

pub use context::device;
