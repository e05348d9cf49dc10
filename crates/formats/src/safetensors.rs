//! The header of a safetensors file.
//!
//! ```text
//!  0        8                    8+N                       file length
//!  ├────────┼────────────────────┼──────────┬──────────┬───┤
//!  │ N: u64 │ JSON, space-padded │ tensor 0 │ tensor 1 │ … │
//!  └────────┴────────────────────┴──────────┴──────────┴───┘
//!                                 ▲ data_offsets count from here; no holes, no overlap
//! ```
//!
//! Cairn pads the JSON with spaces so that data starts on a multiple of 4096 bytes, which the format allows and every
//! reader accepts: direct I/O can then move whole files without a copy.

mod encode;
mod parse;

use cairn_tensor::DType;
use std::collections::BTreeMap;

pub use encode::encode;
pub(crate) use parse::read_at;
pub use parse::{parse, read};

/// The longest header a reader accepts, in bytes: the format's own limit.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The most tensors in a file: what is known of each takes more memory than its line in the header.
pub const MAX_TENSORS: usize = 1 << 18;

/// The name the format keeps for its string map.
pub const METADATA_KEY: &str = "__metadata__";

/// One tensor of a file: its type, shape, and bytes relative to the start of the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The tensor's name.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its shape; empty for a scalar.
    pub shape: Vec<usize>,
    /// First byte, counted from the start of the data.
    pub begin: u64,
    /// One past the last byte.
    pub end: u64,
}

/// Everything a safetensors file says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The tensors in file order.
    pub entries: Vec<Entry>,
    /// The free string map, `{"format": "pt"}` by convention.
    pub metadata: BTreeMap<String, String>,
    /// Where the data starts in the file.
    pub data_start: u64,
}

impl Header {
    /// The length the file must have.
    pub fn file_len(&self) -> u64 {
        self.data_start + self.entries.last().map_or(0, |entry| entry.end)
    }
}

#[cfg(test)]
mod tests;
