//! Data files whose blocks are compressed, each by itself, without loss.
//!
//! ```text
//! 00000.safetensors             block 0 ──────────┬ block 1 ──────────┬ block 2 ─────────┬ …
//! 00000.safetensors.packed      block 0 ┬ block 1 ─┬ block 2 ┬ … ┬ index: where each lies ┬ footer ┤
//! ```
//!
//! The numbers of a model look like noise to a compressor, because the bytes that are alike are not side by side: the sign and exponent
//! of neighbours are nearly the same, the last digits are random. So the bytes of a block are sorted into planes, first bytes, second bytes
//! and so on, and each plane is compressed if that is worth it. How wide the elements are, and which planes are worth it, is measured block by block;
//! nobody has to say what kind of tensor it is.
//!
//! A packed file reads like the one that it stands for, at any place: blocks keep their numbers, their checksums and whatever refers to them.

mod codec;
mod index;
mod measure;
mod reader;
mod writer;

pub(crate) use reader::open;
pub(crate) use writer::{Packer, Packing};

use serde::{Deserialize, Serialize};

/// What documents of packed files say that their readers must know.
pub(crate) const FEATURE: &str = "packed";

/// How the names of packed files end.
const ENDING: &str = ".packed";

/// What a part says of a file that is packed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackedEntry {
    /// The bytes of the object that holds it.
    pub(crate) stored_bytes: u64,
}

/// What the packed form of a file is called.
pub(crate) fn packed_name(name: &str) -> String {
    format!("{name}{ENDING}")
}

/// Whether the object at `key` is a packed file.
pub(crate) fn is_packed(key: &str) -> bool {
    key.ends_with(ENDING)
}
