//! The frame around the manifest and every node: what it is, its length, how its body is compressed, and a checksum.

use crate::cursor::Cursor;
use crate::{Error, zstd};
use crc_fast::{CrcAlgorithm, checksum};

/// The longest block that is read.
pub(super) const MAX_BLOCK_BYTES: u64 = 256 << 20;
/// The longest body of a block, decompressed.
const MAX_BODY_BYTES: u64 = 512 << 20;

/// A kind of block.
pub(super) struct Block {
    magic: [u8; 4],
    name: &'static str,
}

impl Block {
    pub(super) const MANIFEST: Block = Block {
        magic: [0x0c, 0xdb, 0x3a, 0x2a],
        name: "manifest",
    };
    pub(super) const NODE: Block = Block {
        magic: [0x0c, 0xdb, 0x20, 0xde],
        name: "node",
    };

    /// The body of a block that is all of `bytes`, which lie in the file `key`.
    pub(super) fn read(&self, key: &str, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let name = self.name;
        let broken = |what: &str| Error::damaged(key, format!("a {name} of OCDBT {what}"));
        let (bytes, crc) = bytes
            .split_last_chunk::<4>()
            .ok_or_else(|| broken("is cut short"))?;
        let mut cursor = Cursor(bytes);
        if cursor.take(4) != Some(&self.magic) {
            return Err(broken("does not begin like one"));
        }
        let len = cursor.take(8).and_then(|len| len.try_into().ok());
        if len.map(u64::from_le_bytes) != Some(bytes.len() as u64 + 4) {
            return Err(broken("has another length than it says"));
        }
        if checksum(CrcAlgorithm::Crc32Iscsi, bytes) != u64::from(u32::from_le_bytes(*crc)) {
            return Err(broken("does not have its checksum"));
        }
        match (cursor.varint(), cursor.varint()) {
            (Some(0), Some(0)) => Ok(cursor.0.to_vec()),
            (Some(0), Some(1)) => zstd::decode(cursor.0, MAX_BODY_BYTES)
                .map_err(|reason| broken(&format!("cannot be decompressed: {reason}"))),
            (Some(version), Some(compression)) => Err(Error::Unsupported {
                file: key.to_string(),
                reason: format!(
                    "a {name} of OCDBT has version {version} and compression {compression}"
                ),
                hint: "save it again with `use_ocdbt=False`",
            }),
            _ => Err(broken("is cut short")),
        }
    }
}
