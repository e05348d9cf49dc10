//! Copies a rank's state into file images while training goes on.
//!
//! ```text
//!  call of save    plan ─ follow streams ─ pack scratch ─ chunks that cannot wait ─┐ returns
//!  background                                         chunks that can ─────────────┴▶ issue … ─ arrive … ─ captured
//!  fence                                                                             └ waits for "issued", holds the device
//! ```
//!
//! A chunk is a piece of the file image. Most are filled behind the caller's back, from memory that stays as it is until a
//! fence: first what changes in the first turn, and so on, so that each fence waits for as little as it can. Those with bytes that are only borrowed, or that nobody fences, are filled before `save` returns.

mod copies;
mod fill;
mod flow;
mod gate;
mod issue;
mod lanes;
mod picture;
mod scratch;
mod turns;

pub(crate) use copies::Copies;
pub(crate) use flow::{Flow, Means, Mode};
pub use gate::Fenced;
pub(crate) use gate::Gate;
pub(crate) use lanes::Lanes;
pub(crate) use picture::Picture;
pub(crate) use scratch::ScratchCache;
pub(crate) use turns::Turns;
