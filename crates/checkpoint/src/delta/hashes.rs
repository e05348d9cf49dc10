//! The hashes of a file's blocks, kept beside it for whoever saves next.
//!
//! Nobody needs them to read a step: without them, the next save is a full one.

use crate::Error;
use crate::checksum::{sha256_hex, to_hex};
use crate::error::StoreContext;
use crate::manifest::check_version;
use crate::names::AttemptKeys;
use crate::part::field;
use crate::seal::{seal, unseal};
use cairn_store::{PutMode, Store};
use serde_json::{Map, json};

/// The first 16 bytes of a block's BLAKE3: two blocks with the same are the same block.
pub(crate) type BlockHash = [u8; 16];

const DIGITS: usize = 2 * size_of::<BlockHash>();

/// What the table has for a block that was not hashed. No block has this hash.
const UNKNOWN: BlockHash = [0; size_of::<BlockHash>()];

/// The hash of a block.
pub(crate) fn hash_block(block: &[u8]) -> BlockHash {
    let hash = blake3::hash(block);
    let (head, _) = hash
        .as_bytes()
        .split_first_chunk()
        .expect("BLAKE3 has 32 bytes");
    *head
}

/// Puts the hashes of the file of `writer`, whose line of CRCs has the digest `crcs_sha256`.
pub(crate) fn put(
    store: &dyn Store,
    keys: &AttemptKeys,
    writer: usize,
    crcs_sha256: &str,
    hashes: &[Option<BlockHash>],
) -> Result<(), Error> {
    let known = hashes.iter().map(|hash| hash.unwrap_or(UNKNOWN));
    let table = to_hex(&known.collect::<Vec<_>>().concat());
    let mut members = Map::new();
    members.insert("cairn".into(), json!(1));
    members.insert("kind".into(), json!("hashes"));
    members.insert("crcs_sha256".into(), json!(crcs_sha256));
    members.insert("hashes_sha256".into(), json!(sha256_hex(table.as_bytes())));
    let text = format!("{}{table}\n", seal(&members).0);
    let key = keys.block_hashes(writer);
    let put = store.put(&key, text.as_bytes(), PutMode::Create);
    put.doing(|| format!("write `{key}`"))
}

/// Reads the hashes of the file of `writer`, if they are those of the file with these CRCs.
///
/// # Errors
/// If they are missing or damaged.
pub(crate) fn read(
    store: &dyn Store,
    keys: &AttemptKeys,
    writer: usize,
    crcs_sha256: &str,
) -> Result<Vec<Option<BlockHash>>, Error> {
    let key = keys.block_hashes(writer);
    let bytes = store.get(&key).doing(|| format!("read `{key}`"))?;
    let damaged = |reason: &str| Error::damaged(&key, reason);
    let split = bytes.iter().position(|byte| *byte == b'\n');
    let (line, table) = bytes.split_at(split.map_or(bytes.len(), |at| at + 1));
    let sealed = unseal(line).map_err(|reason| damaged(&reason))?;
    check_version(&key, &sealed.members)?;
    let member = |name| field::<String>(&sealed.members, name).map_err(|reason| damaged(&reason));
    let table = table
        .strip_suffix(b"\n")
        .ok_or_else(|| damaged("its table is cut short"))?;
    if member("hashes_sha256")? != sha256_hex(table) || member("crcs_sha256")? != crcs_sha256 {
        return Err(damaged("its table is not that of the file"));
    }
    from_hex(table).ok_or_else(|| damaged("its table is garbled"))
}

fn from_hex(table: &[u8]) -> Option<Vec<Option<BlockHash>>> {
    if !table.len().is_multiple_of(DIGITS) {
        return None;
    }
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let hash = |digits: &[u8]| {
        let mut hash = BlockHash::default();
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some((hash != UNKNOWN).then_some(hash))
    };
    table.chunks(DIGITS).map(hash).collect()
}

#[cfg(test)]
mod tests {
    //! What is put reads back, and any damage is found.

    use super::*;
    use cairn_store::Memory;

    #[test]
    fn hashes_read_back_and_every_flipped_byte_is_found() {
        let (store, keys) = (Memory::new(), AttemptKeys::new(3, "abc"));
        let hashes = [Some(hash_block(b"one")), None, Some(hash_block(b""))];
        put(&store, &keys, 7, "crcs", &hashes).unwrap();
        assert_eq!(read(&store, &keys, 7, "crcs").unwrap(), hashes);
        assert!(read(&store, &keys, 7, "others").unwrap_err().is_damage());
        assert!(read(&store, &keys, 8, "crcs").unwrap_err().is_damage());
        let whole = store.get(&keys.block_hashes(7)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            store
                .put(&keys.block_hashes(7), &bytes, PutMode::Replace)
                .unwrap();
            assert!(read(&store, &keys, 7, "crcs").is_err(), "byte {at}");
            store
                .put(&keys.block_hashes(7), &whole[..at], PutMode::Replace)
                .unwrap();
            assert!(read(&store, &keys, 7, "crcs").is_err(), "length {at}");
        }
    }

    #[test]
    fn a_hash_is_the_head_of_blake3() {
        let empty = "af1349b9f5f9a1a6a0404dea36dcc949";
        assert_eq!(to_hex(&hash_block(b"")), empty);
    }
}
