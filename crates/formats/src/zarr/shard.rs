//! Chunks inside of a chunk, with an index of where each lies.

use super::Chunk;
use super::array::{Array, Sharding};
use crate::Error;
use crate::entries::Place;
use cairn_store::Store;
use cairn_tensor::row_major_strides;
use crc_fast::{CrcAlgorithm, checksum};

/// The most chunks in a shard.
const MAX_CHUNKS: usize = 1 << 20;
/// The length of a chunk's entry in the index: its offset and its length.
const ENTRY_BYTES: usize = 16;

/// The chunks that a chunk of the grid is made of: itself, unless it is a shard.
pub(super) fn parts(store: &dyn Store, array: &Array, shard: Chunk) -> Result<Vec<Chunk>, Error> {
    let (Some(sharding), Some(place)) = (&array.sharding, &shard.place) else {
        return Ok(vec![shard]);
    };
    let broken = |what: String| Error::damaged(place.key(), format!("a shard of it {what}"));
    let grid = shard.shape.iter().zip(&sharding.chunk);
    let grid: Vec<usize> = grid.map(|(shard, chunk)| shard / chunk).collect();
    let count = cairn_tensor::element_count(&grid).filter(|count| *count <= MAX_CHUNKS);
    let count = count.ok_or_else(|| broken(format!("has over {MAX_CHUNKS} chunks")))?;
    let index = index(store, place, sharding, count)?;
    let index = index.ok_or_else(|| broken("has no index, or not its checksum".into()))?;
    let strides = row_major_strides(&grid);
    let mut parts = Vec::with_capacity(count);
    for (number, entry) in index.chunks_exact(ENTRY_BYTES).enumerate() {
        let at = |(dim, stride): (usize, &usize)| {
            shard.offset[dim] + number / stride.max(&1) % grid[dim] * sharding.chunk[dim]
        };
        let inside = match entry_range(entry) {
            None => None,
            Some((start, len)) => {
                let part = start
                    .checked_add(len)
                    .and_then(|end| place.part(start..end));
                Some(part.ok_or_else(|| broken(format!("has a chunk at bytes {start}+{len}")))?)
            }
        };
        parts.push(Chunk {
            offset: strides.iter().enumerate().map(at).collect(),
            shape: sharding.chunk.clone(),
            place: inside,
        });
    }
    Ok(parts)
}

/// The entries of `count` chunks; `None` if they are not there or damaged.
fn index(
    store: &dyn Store,
    place: &Place,
    sharding: &Sharding,
    count: usize,
) -> Result<Option<Vec<u8>>, Error> {
    let crc_len = if sharding.index_has_crc { 4 } else { 0 };
    let len = (count * ENTRY_BYTES) as u64 + crc_len;
    let range = match sharding.index_at_end {
        true => place.len().checked_sub(len).map(|start| start..place.len()),
        false => Some(0..len),
    };
    let Some(part) = range.and_then(|range| place.part(range)) else {
        return Ok(None);
    };
    let mut bytes = part.read(store, len)?;
    let crc = bytes.split_off(count * ENTRY_BYTES);
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &bytes);
    let matches = crc.is_empty()
        || crc
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
            == sum;
    Ok(matches.then_some(bytes))
}

/// Offset and length; `None` for a chunk that was not stored.
fn entry_range(entry: &[u8]) -> Option<(u64, u64)> {
    let (start, len) = entry.split_first_chunk::<8>()?;
    let (start, len) = (
        u64::from_le_bytes(*start),
        u64::from_le_bytes(len.try_into().ok()?),
    );
    ((start, len) != (u64::MAX, u64::MAX)).then_some((start, len))
}
