//! Memory that outlives the process that captures into it, as saves and loads see its keeper.
//!
//! ```text
//!  save      begin ─▶ capture into the keeper's memory ─▶ captured ─▶ written ─▶ committed
//!  keeper                                                  └ from here on the state survives this process: who dies is replaced
//!  load      the store, with what the keeper holds of the run laid over it
//! ```
//!
//! Who keeps it, and how that is talked to, is another crate's business: this one asks through [`Keeper`] and gives the keeper, as
//! [`Orphan`], what it needs to end a save in place of a writer that died.

mod draft;
mod orphan;

pub(crate) use draft::Draft;
pub use orphan::{Orphan, manifest_of};

use crate::names::{AttemptKeys, commit_key};
use crate::pool::CHUNK_BYTES;
use cairn_device::{Buffer, Device};
use cairn_store::Store;
use std::fmt;
use std::sync::Arc;

/// One writer's share of one save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The address of the run's store.
    pub run: String,
    /// The step.
    pub step: u64,
    /// The attempt at it.
    pub attempt: String,
    /// Which writer.
    pub writer: usize,
    /// Of how many.
    pub world: usize,
    /// The length of its data file; 0 if it writes none.
    pub len_bytes: u64,
    /// Whether the attempt may take the place of one that is committed.
    pub replace: bool,
}

impl Snapshot {
    /// The memory its image takes: whole chunks.
    pub fn room_bytes(&self) -> u64 {
        let chunk = CHUNK_BYTES as u64;
        self.len_bytes.div_ceil(chunk).saturating_mul(chunk)
    }

    /// The key of its data file.
    pub fn data_key(&self) -> String {
        self.keys().data(self.writer)
    }

    /// The key of its part.
    pub fn part_key(&self) -> String {
        self.keys().part(self.writer)
    }

    /// The key of its step's manifest.
    pub fn commit_key(&self) -> String {
        commit_key(self.step)
    }

    fn keys(&self) -> AttemptKeys {
        AttemptKeys::new(self.step, &self.attempt)
    }

    /// The bytes of each buffer an image is made of.
    pub fn chunk_bytes() -> usize {
        CHUNK_BYTES
    }
}

/// Somebody who keeps the memory of captures, in another process. Whatever goes wrong there, a save goes on without.
pub trait Keeper: Send + Sync + fmt::Debug {
    /// Memory for the image of a snapshot; `None` if there is none to be had.
    fn begin(&self, snapshot: &Snapshot, pin: Option<Arc<dyn Device>>) -> Option<Box<dyn Keeping>>;

    /// A run's store with what is kept of the run laid over it.
    fn over(&self, store: &Arc<dyn Store>) -> Arc<dyn Store>;
}

/// A snapshot that is being kept. Dropped before it is committed, it is forgotten.
pub trait Keeping: Send + Sync + fmt::Debug {
    /// The image, as buffers of [`Snapshot::chunk_bytes`] in their order. They are there once.
    fn take_image(&mut self) -> Vec<Buffer>;

    /// What users should know of the memory.
    fn notes(&self) -> Vec<String>;

    /// Says that every byte is in the image. `draft` is what an [`Orphan`] is read from.
    fn captured(&self, draft: &[u8]);

    /// Says that the data is durable, with the part that proves it.
    fn written(&self, part: &[u8]);

    /// Says that the step is committed.
    fn committed(&self);
}
