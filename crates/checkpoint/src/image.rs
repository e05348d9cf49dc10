//! The image of a data file: where its header and every item lie, before a byte of it exists.
//!
//! ```text
//! 0          data_start (a multiple of 4096)                         len
//! ├ header ──┼ item 0 ───────┬ item 1 ─────────┬ … ──────────────────┤
//! ├ block 0 ─────────┼ block 1 ─────────┼ block 2 ──────────┼ …
//! ```

use crate::Error;
use crate::assign::WriterItems;
use crate::layout::Layout;
use cairn_formats::safetensors::{self, Entry};
use cairn_sharding::{Piece, TensorSpec};
use cairn_store::ALIGNMENT;

/// The header's string map, as PyTorch's tools expect it.
const METADATA: [(&str, &str); 1] = [("format", "pt")];

/// A file as it will be: its header, and the bytes that follow.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) header: Vec<u8>,
    pub(crate) len: u64,
}

impl Image {
    /// The image of a file with these entries, which follow each other without gaps.
    pub(crate) fn new(entries: &[Entry]) -> Result<Self, Error> {
        let header = safetensors::encode(entries, &METADATA, ALIGNMENT).ok_or_else(|| {
            let count = entries.len();
            Error::State {
                name: format!("{count} tensors"),
                reason: "need a header over the file format's limit of 100 MB".into(),
            }
        })?;
        let data_len = entries.last().map_or(0, |entry| entry.end);
        let len = header.len() as u64 + data_len;
        Ok(Self { header, len })
    }

    /// The image of bytes that are no file.
    pub(crate) fn bare(len: u64) -> Self {
        let header = Vec::new();
        Self { header, len }
    }

    /// Where the data starts.
    pub(crate) fn data_start(&self) -> u64 {
        self.header.len() as u64
    }

    /// Copies the part of the header that lies in `out`, which starts at byte `offset` of the file.
    pub(crate) fn fill_header(&self, offset: u64, out: &mut [u8]) {
        let Ok(begin) = usize::try_from(offset) else {
            return;
        };
        if let Some(rest) = self.header.get(begin..) {
            let len = rest.len().min(out.len());
            out[..len].copy_from_slice(&rest[..len]);
        }
    }
}

/// The header entries of a writer's file.
pub(crate) fn entries(layout: &Layout, writer: &WriterItems) -> Vec<Entry> {
    let entry = |item: &crate::assign::Item| {
        let spec = layout.spec(item.tensor);
        Entry {
            name: entry_name(layout.name(item.tensor), spec, &item.piece),
            dtype: spec.dtype(),
            shape: entry_shape(&item.piece),
            begin: item.offset,
            end: item.offset + item.len_bytes,
        }
    };
    writer.items.iter().map(entry).collect()
}

/// What a piece is called in a file: a whole tensor keeps its name.
pub(crate) fn entry_name(name: &str, spec: &TensorSpec, piece: &Piece) -> String {
    if is_whole(piece, spec) {
        name.to_string()
    } else {
        format!("{name}@{piece}")
    }
}

/// Whether `piece` is all of the tensor.
pub(crate) fn is_whole(piece: &Piece, spec: &TensorSpec) -> bool {
    piece.flat.is_none() && piece.region.extent == spec.shape()
}

fn entry_shape(piece: &Piece) -> Vec<usize> {
    match &piece.flat {
        None => piece.region.extent.clone(),
        Some(range) => vec![range.len()],
    }
}
