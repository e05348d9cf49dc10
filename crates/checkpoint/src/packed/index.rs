//! Where the blocks of a packed file lie: at its end, because that is known last.
//!
//! ```text
//! … blocks ┬ for each block: offset u64, length u32 ┬ "CAIRNPK1" ┬ length unpacked u64 ┬ CRC of index u32 ┬ CRC of the 20 bytes before u32 ┤
//! ```

use super::codec::MAX_BYTES;
use crate::checksum::crc32c;
use crate::delta::block_count;
use cairn_store::{Error as StoreError, ObjectReader};
use std::ops::Range;

const MAGIC: [u8; 8] = *b"CAIRNPK1";
const ENTRY_BYTES: usize = 12;
const FOOTER_BYTES: usize = 24;

/// The bytes at the end of a file that are read first: most indexes are shorter.
const TAIL_BYTES: u64 = 64 << 10;

/// Where the blocks of a packed file lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Index {
    /// The bytes of all blocks, unpacked.
    pub(super) len: u64,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    offset: u64,
    len: u32,
}

/// Why there is no index.
#[derive(Debug)]
pub(super) enum NoIndex {
    Unreadable(StoreError),
    Damaged(&'static str),
}

/// The bytes of the index of a file of so many blocks.
pub(super) fn index_bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(ENTRY_BYTES as u64) + FOOTER_BYTES as u64
}

impl Index {
    /// The index of blocks that lie in these ranges and have `len` bytes unpacked.
    pub(super) fn new(len: u64, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let entry = |range: Range<u64>| Entry {
            offset: range.start,
            len: u32::try_from(range.end - range.start).unwrap_or(u32::MAX),
        };
        let entries = ranges.into_iter().map(entry).collect();
        Self { len, entries }
    }

    /// Where the block number `block` lies.
    pub(super) fn range(&self, block: u64) -> Option<Range<u64>> {
        let entry = self.entries.get(usize::try_from(block).ok()?)?;
        Some(entry.offset..entry.offset + u64::from(entry.len))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in &self.entries {
            bytes.extend(entry.offset.to_le_bytes());
            bytes.extend(entry.len.to_le_bytes());
        }
        let crc = crc32c(&bytes);
        let footer = bytes.len();
        bytes.extend(MAGIC);
        bytes.extend(self.len.to_le_bytes());
        bytes.extend(crc.to_le_bytes());
        let crc = crc32c(&bytes[footer..]);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    /// Reads the index of an object.
    pub(super) fn read(object: &dyn ObjectReader) -> Result<Self, NoIndex> {
        let tail = read_end(object, object.len().min(TAIL_BYTES))?;
        let (entries, footer) = tail
            .split_last_chunk::<FOOTER_BYTES>()
            .ok_or(NoIndex::Damaged("it is too short for an index"))?;
        let (len, crc) = parse_footer(footer).ok_or(NoIndex::Damaged(
            "its last bytes are not those of a packed file",
        ))?;
        let whole = index_bytes(block_count(len));
        if whole > object.len() {
            return Err(NoIndex::Damaged("it is too short for its index"));
        }
        let entries_len = whole - FOOTER_BYTES as u64;
        let longer;
        let entries = match usize::try_from(entries_len)
            .ok()
            .and_then(|len| entries.len().checked_sub(len))
        {
            Some(skip) => &entries[skip..],
            None => {
                longer = read_end(object, whole)?;
                &longer[..longer.len() - FOOTER_BYTES]
            }
        };
        if crc32c(entries) != crc {
            return Err(NoIndex::Damaged("its index does not fit its checksum"));
        }
        let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
        let entries = entries
            .iter()
            .map(|bytes| parse_entry(bytes, object.len() - whole));
        let entries = entries.collect::<Option<_>>();
        let entries = entries.ok_or(NoIndex::Damaged(
            "its index names bytes that it does not have",
        ))?;
        Ok(Self { len, entries })
    }
}

/// The last `len` bytes of an object.
fn read_end(object: &dyn ObjectReader, len: u64) -> Result<Vec<u8>, NoIndex> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let read = object.read_at(object.len() - len, &mut bytes);
    read.map_err(NoIndex::Unreadable)?;
    Ok(bytes)
}

/// The length and the checksum of the index that a footer tells.
fn parse_footer(footer: &[u8; FOOTER_BYTES]) -> Option<(u64, u32)> {
    let (head, own) = footer.split_last_chunk::<4>()?;
    let (head, crc) = head.split_last_chunk::<4>()?;
    let (magic, len) = head.split_first_chunk::<8>()?;
    let len = u64::from_le_bytes(len.try_into().ok()?);
    let crc_holds = crc32c(&footer[..FOOTER_BYTES - 4]) == u32::from_le_bytes(*own);
    (*magic == MAGIC && crc_holds).then(|| (len, u32::from_le_bytes(*crc)))
}

/// An entry of blocks that end before `end`.
fn parse_entry(bytes: &[u8; ENTRY_BYTES], end: u64) -> Option<Entry> {
    let (offset, len) = bytes.split_first_chunk::<8>()?;
    let offset = u64::from_le_bytes(*offset);
    let len = u32::from_le_bytes(len.try_into().ok()?);
    let fits = offset
        .checked_add(u64::from(len))
        .is_some_and(|behind| behind <= end);
    (fits && len as usize <= MAX_BYTES).then_some(Entry { offset, len })
}

#[cfg(test)]
mod tests {
    //! An index reads back, and whatever else stands in its place is refused.

    use super::*;
    use crate::checksum::BLOCK_BYTES;
    use cairn_store::{Memory, PutMode, Store};
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Index, NoIndex> {
        let store = Memory::new();
        store.put("a", bytes, PutMode::Create).unwrap();
        Index::read(store.reader("a").unwrap().as_ref())
    }

    /// The bytes of a file with so many blocks of 10 bytes each, and its index.
    fn file(blocks: u64) -> (Vec<u8>, Index) {
        let range = |block: u64| 10 * block..10 * (block + 1);
        let len = (blocks * BLOCK_BYTES as u64).saturating_sub(3);
        let index = Index::new(len, (0..blocks).map(range));
        let mut bytes = vec![7; usize::try_from(10 * blocks).unwrap()];
        bytes.extend(index.encode());
        (bytes, index)
    }

    #[test]
    fn an_index_reads_back_however_long_it_is() {
        // The last has more than fits into the first read.
        for blocks in [0, 1, 2, 100, 6000] {
            let (bytes, index) = file(blocks);
            assert_eq!(read(&bytes).unwrap(), index);
            assert_eq!(index.range(blocks), None);
        }
    }

    #[test]
    fn an_index_that_was_changed_or_cut_is_refused() {
        let (bytes, _) = file(3);
        for at in 30..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(read(&changed).is_err(), "byte {at}");
            assert!(read(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn an_index_that_names_bytes_outside_of_its_file_is_refused() {
        let most = MAX_BYTES as u64;
        for range in [0..31, 30..31, u64::MAX - 1..u64::MAX, 0..most + 1] {
            let index = Index::new(5, [range.clone()]);
            let mut bytes = vec![7; 30];
            bytes.extend(index.encode());
            assert!(read(&bytes).is_err(), "{range:?}");
        }
        // One that claims more blocks than there is room for.
        let index = Index::new(u64::MAX, []);
        assert!(read(&index.encode()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            len in any::<u64>(),
        ) {
            let _ = read(&bytes);
            // The same with a footer that is good by itself.
            let index = Index::new(len, []).encode();
            bytes.extend(index);
            let _ = read(&bytes);
        }
    }
}
