//! The object that a file is written to.

use super::{Chunk, Output};
use crate::Error;
use crate::checksum::BLOCK_BYTES;
use crate::delta::{BlockPlace, Changes, block_count, stretches};
use crate::error::StoreContext;
use crate::packed::{PackedEntry, Packing, packed_name};
use crate::pool::CHUNK_BYTES;
use cairn_store::ObjectWriter;
use std::ops::Range;

/// An object being written: the file, or what of it is new.
pub(super) struct Object {
    pub(super) key: String,
    pub(super) writer: Box<dyn ObjectWriter>,
    pub(super) changes: Option<Changes>,
    pub(super) packing: Option<Packing>,
}

impl Object {
    /// Begins the file, or, if it can refer to an earlier one, what of it is new.
    pub(super) fn begin(output: &Output) -> Result<Self, Error> {
        let store = output.store.as_ref();
        let base = output.deltas.as_ref().map(|deltas| deltas.base(store));
        let changes = base.transpose()?.flatten().map(Changes::new);
        let key = match (&output.deltas, &changes) {
            (Some(deltas), Some(_)) => deltas.keys.delta(deltas.writer),
            _ => output.key.clone(),
        };
        let (key, writer) = match (output.compress, &changes) {
            (true, _) => {
                let key = packed_name(&key);
                let writer = store.create_up_to(&key, Packing::most_bytes(output.len));
                (key, writer)
            }
            (false, Some(_)) => {
                let most = block_count(output.len).saturating_mul(BLOCK_BYTES as u64);
                let writer = store.create_up_to(&key, most);
                (key, writer)
            }
            (false, None) => {
                let writer = store.create(&key, output.len);
                (key, writer)
            }
        };
        let writer = writer.doing(|| format!("create `{key}`"))?;
        Ok(Self {
            key,
            writer,
            changes,
            packing: output.compress.then(Packing::default),
        })
    }

    /// What of a chunk goes into the object: offset there, as if it were not packed, and place in the chunk.
    pub(super) fn stretches(
        &self,
        chunk: &Chunk,
        places: &[BlockPlace],
    ) -> Vec<(u64, Range<usize>)> {
        if self.changes.is_none() {
            return vec![(chunk.index as u64 * CHUNK_BYTES as u64, 0..chunk.len)];
        }
        let bytes = |blocks: Range<usize>| blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES;
        let found = stretches(places).into_iter();
        found
            .map(|stretch| (stretch.offset, bytes(stretch.blocks)))
            .collect()
    }

    /// Makes the object of a file of `len` bytes durable. A delta without anything new has none.
    pub(super) fn finish(self, len: u64) -> Result<(Option<Changes>, Option<PackedEntry>), Error> {
        let new = self.changes.as_ref().map(Changes::stored_bytes);
        let doing = || format!("make `{}` durable", self.key);
        let mut packed = None;
        let finished = match (new, self.packing) {
            (Some(0), packing) => {
                packed = packing.map(|_| PackedEntry { stored_bytes: 0 });
                Ok(())
            }
            (new, Some(packing)) => {
                let (offset, index) = packing.index(new.unwrap_or(len));
                let stored_bytes = offset + index.len() as u64;
                packed = Some(PackedEntry { stored_bytes });
                self.writer.write_at(offset, &index).doing(doing)?;
                self.writer.finish_at(stored_bytes)
            }
            (Some(new), None) => self.writer.finish_at(new),
            (None, None) => self.writer.finish(),
        };
        finished.doing(doing)?;
        Ok((self.changes, packed))
    }
}
