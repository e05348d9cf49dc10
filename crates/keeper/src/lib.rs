//! A process that keeps the memory of captures, so that the last captured state survives a crash of the trainer.
//!
//! ```text
//!  trainer ── begin ──▶ keeper          memory of the keeper's, handed over as an open file
//!     │  capture into it                (it is the staging image: nothing is copied twice)
//!     ├── captured ──▶ ·                from here on the state survives the trainer
//!     ├── written ───▶ ·                its bytes are durable, as without a keeper
//!     ├── committed ─▶ ·                the memory stays until a newer capture is complete
//!     ✗ dies                            what was captured and not written, the keeper writes and commits
//!  restarted, on any layout ── held ──▶ the files of the newest step are read from memory
//! ```
//!
//! * [`Server`] is the keeper: one for each user of a machine. [`Limits`] say how much memory it takes.
//! * [`Client`] is a trainer's side, given to its saves and loads as
//!   [`Options::keeper`](cairn_checkpoint::Options::keeper). Without a keeper, or when it dies, everything goes on as if there were none.
//! * [`status`] asks a keeper what it holds.
//!
//! The two talk through a Unix socket in a folder of their user's. Memory is sealed: nobody can change its length. The keeper maps
//! none of it and reads it as a file, so that nothing a trainer does can harm it.

mod client;
mod connection;
mod door;
mod error;
mod kept;
mod lease;
mod message;
mod notify;
mod persist;
mod server;
mod socket;
mod status;
mod sync;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod wire;

pub use client::Client;
pub use error::Error;
pub use message::VERSION;
pub use notify::notify;
pub use server::{Server, ServerOptions};
pub use socket::{KEEPER_VARIABLE, default_socket};
pub use status::{HeldStatus, Status, status};
pub use table::Limits;
