//! Bytes under keys, published atomically.
//!
//! A [`Store`] keeps objects: small ones put in one call, large ones written in parallel by many
//! threads. Whatever happens, a reader finds an object whole or not at all, and an object that was
//! reported as published is still there after a power loss. Of several writers that create the same
//! object, exactly one wins. Those three promises are all that a commit protocol needs.
//!
//! ```
//! use cairn_store::{Memory, PutMode, Store};
//!
//! let store = Memory::new();
//! let writer = store.create("step-00000100/weights", 5000)?;
//! writer.write_at(4096, &[1; 904])?;          // any order, any thread
//! writer.write_at(0, &[0; 4096])?;
//! writer.finish()?;                           // now it exists, and stays
//!
//! store.put("step-00000100/COMMIT", b"{}", PutMode::Create)?;
//! assert!(store.put("step-00000100/COMMIT", b"{}", PutMode::Create).is_err());
//! assert_eq!(store.list_folders("")?, ["step-00000100"]);
//! # Ok::<(), cairn_store::Error>(())
//! ```
//!
//! [`Local`] is a folder of a file system, [`Memory`] a map, [`Tiered`] two stores as one, and buckets of S3, Google and Azure are stores with
//! the features `s3`, `gcs` and `azure`; [`open`] finds the store for an address. [`examine`] tries out what a store can do.
//! A [`Journal`] is a file that grows, for logs; a [`Scratch`] one that needs not last.
//! [`Exchange`] is no store: processes of one machine hand each other bytes there that need not last.

mod buffer;
mod coverage;
mod doctor;
mod error;
#[expect(
    clippy::disallowed_methods,
    reason = "members of an exchange meet in files"
)]
mod exchange;
mod key;
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one store that touches files"
)]
mod local;
mod location;
mod memory;
#[cfg(feature = "objects")]
mod object;
mod store;
#[expect(
    clippy::disallowed_methods,
    reason = "the system answers through files that are none"
)]
mod system;
#[cfg(feature = "testing")]
pub mod testing;
mod tiered;
mod url;

pub use buffer::{ALIGNMENT, AlignedBuffer};
pub use doctor::{Finding, Health, examine};
pub use error::Error;
pub use exchange::Exchange;
pub use key::{MAX_KEY_BYTES, MAX_SEGMENT_BYTES};
pub use local::{Journal, Local, LocalOptions, Scratch};
pub use location::Location;
pub use memory::Memory;
#[cfg(feature = "objects")]
pub use object::{Client, Objects};
pub use store::{MAX_GET_BYTES, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store, Upload};
pub use system::{system_link, system_text};
pub use tiered::Tiered;
pub use url::{open, open_with, redact};
