//! Saves that hold only what changed: blocks that are as they were in an earlier step are referred to, not written again.
//!
//! ```text
//! the image of a file, in blocks     0  1  2  3  4  5  6  7
//! step 10, 00000.safetensors         0  1  2  3  4  5  6  7      nothing before it: written in full
//! step 20, 00000.delta                        3        6         what changed since; 0 1 2, 4 5 and 7 lie in step 10
//! step 30, 00000.delta                  1     3                  0 2 4 5 7 lie in step 10, 6 in step 20
//! ```
//!
//! A reference names the file that really holds a block, never another reference, so a read never follows more than one, and
//! a file refers to at most [`MAX_BASES`] others. What is compared is a hash of each block that nobody can fake; a CRC alone would be no proof.
//!
//! Who refers to a file must be sure that it stays. [`pin`] is how a writer says so before it looks whether the file is still there, and
//! [`references`] how a pruner hears of it; why the two can never miss each other is written down in `docs/architecture.md`.

mod base;
mod changes;
mod hashes;
mod map;
pub(crate) mod pin;
mod reader;
mod references;
mod saved;

pub(crate) use base::{Base, Bases, Deltas};
pub(crate) use changes::{Changes, stretches};
pub(crate) use hashes::{BlockHash, hash_block, put as put_hashes, read as read_hashes};
pub(crate) use map::{BlockMap, BlockPlace, block_count};
pub(crate) use reader::Joined;
pub use reader::Origins;
pub(crate) use references::{Holder, References};
pub(crate) use saved::SavedBlocks;

use serde::{Deserialize, Serialize};

/// What documents of deltas say that their readers must know.
pub(crate) const FEATURE: &str = "delta";

/// The most files that one file refers to. Blocks of those that hold the fewest are written again when there would be more.
pub(crate) const MAX_BASES: usize = 16;

/// What a part says of a file whose blocks lie in several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeltaEntry {
    /// The bytes of the writer's own file; 0 if nothing changed, and there is none.
    pub(crate) stored_bytes: u64,
    /// The keys of the other files, from the folder of the run on.
    pub(crate) bases: Vec<String>,
    /// SHA-256 of the line that says where each block lies.
    pub(crate) map_sha256: String,
}
