//! A tree of several levels that TensorStore wrote, and trees that lie.

use super::*;
use crate::entries::Place;
use crate::reading::fixture;
use cairn_store::{Memory, PutMode};
use crc_fast::{CrcAlgorithm, checksum};
use proptest::prelude::*;

fn copy() -> Memory {
    let (from, to) = (fixture("orbax/tree"), Memory::new());
    for meta in from.list("").unwrap() {
        let bytes = from.get(&meta.key).unwrap();
        to.put(&meta.key, &bytes, PutMode::Create).unwrap();
    }
    to
}

#[test]
fn every_value_is_found_wherever_it_lies() {
    let store = fixture("orbax/tree");
    let entries = entries(&store, "").unwrap();
    assert_eq!(entries.places.len(), 60);
    for number in 0..60_u8 {
        let place = &entries.places[&format!("folder/key-{number:02}")];
        assert_eq!(matches!(place, Place::Held(..)), number <= 20, "{number}");
        assert_eq!(place.read(&store, 60).unwrap(), vec![number; number.into()]);
    }
}

#[test]
fn the_tree_has_levels() {
    let store = fixture("orbax/tree");
    let body = Block::MANIFEST
        .read("m", &store.get(MANIFEST_FILE).unwrap())
        .unwrap();
    let root = newest_root("m", &body).unwrap().unwrap();
    assert!(!format!("{root:?}").contains("height: 0"), "{root:?}");
}

#[test]
fn every_changed_byte_of_a_manifest_is_noticed() {
    let store = copy();
    let whole = store.get(MANIFEST_FILE).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        store.put(MANIFEST_FILE, &bytes, PutMode::Replace).unwrap();
        assert!(entries(&store, "").is_err(), "byte {at}");
        store
            .put(MANIFEST_FILE, &whole[..at], PutMode::Replace)
            .unwrap();
        assert!(entries(&store, "").is_err(), "{at} bytes");
    }
}

#[test]
fn a_data_file_that_is_short_or_gone_is_noticed() {
    let store = copy();
    let key = store.list("d").unwrap().remove(0).key;
    let whole = store.get(&key).unwrap();
    for len in [0, 10, whole.len() / 2, whole.len() - 1] {
        store.put(&key, &whole[..len], PutMode::Replace).unwrap();
        assert!(entries(&store, "").is_err(), "{len} bytes");
    }
    store.delete(&key).unwrap();
    assert!(entries(&store, "").is_err());
}

/// A block around a body, as it should be.
fn block(magic: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend((body.len() as u64 + 18).to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(body);
    let crc = checksum(CrcAlgorithm::Crc32Iscsi, &bytes);
    bytes.extend(&crc.to_le_bytes()[..4]);
    bytes
}

/// A manifest whose only root is a leaf of `len` bytes in the file `path`.
fn manifest(path: &str, len: u8) -> Vec<u8> {
    let mut body = vec![0; 16];
    body.extend([0, 100, 100, 4, 0]);
    body.extend([1, u8::try_from(path.len()).unwrap(), 0]);
    body.extend(path.as_bytes());
    body.extend([1, 1, 0, 0, 0, len, 1, 1, 1]);
    body.extend([0; 8]);
    body.push(0);
    block([0x0c, 0xdb, 0x3a, 0x2a], &body)
}

#[test]
fn paths_out_of_the_folder_are_refused() {
    let leaf = block([0x0c, 0xdb, 0x20, 0xde], &[0, 0, 1, 1, b'a', 1, 0, b'v']);
    let len = u8::try_from(leaf.len()).unwrap();
    let store = Memory::new();
    store.put("d", &leaf, PutMode::Create).unwrap();
    store
        .put(MANIFEST_FILE, &manifest("d", len), PutMode::Create)
        .unwrap();
    let found = entries(&store, "").unwrap().places;
    assert_eq!(found["a"], Place::Held("d".into(), b"v".to_vec()));
    for path in ["../d/x", "/etc/passwd", "d/../../x", ""] {
        let store = Memory::new();
        store
            .put(MANIFEST_FILE, &manifest(path, len), PutMode::Create)
            .unwrap();
        let error = entries(&store, "").unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{path}: {error}");
    }
}

proptest! {
    /// A body with the right checksum around it may say anything.
    #[test]
    fn any_node_is_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..80), small in any::<bool>()) {
        let body: Vec<u8> = body.into_iter().map(|byte| if small { byte % 4 } else { byte }).collect();
        let node = block([0x0c, 0xdb, 0x20, 0xde], &body);
        let store = Memory::new();
        let len = u8::try_from(node.len()).unwrap();
        store.put(MANIFEST_FILE, &manifest("d", len), PutMode::Create).unwrap();
        store.put("d", &node, PutMode::Create).unwrap();
        drop(entries(&store, ""));
        let bytes = block([0x0c, 0xdb, 0x3a, 0x2a], &body);
        store.put(MANIFEST_FILE, &bytes, PutMode::Replace).unwrap();
        drop(entries(&store, ""));
    }
}
