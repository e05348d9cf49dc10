//! Trees of OCDBT whose checksums are right, whatever they say: nothing outside of the folder is asked for, and no walk is
//! endless.

#![no_main]

use cairn_formats::open;
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::fuzz_target;

/// A block around a body: what it is, its length, its version, no compression, and a CRC-32C.
fn block(magic: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend((body.len() as u64 + 18).to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(body);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
    bytes.extend(&crc.to_le_bytes()[..4]);
    bytes
}

fuzz_target!(|input: (&[u8], &[u8])| {
    let (manifest, node) = input;
    let store = Memory::new();
    let manifest = block([0x0c, 0xdb, 0x3a, 0x2a], manifest);
    let node = block([0x0c, 0xdb, 0x20, 0xde], node);
    for (key, bytes) in [("manifest.ocdbt", manifest), ("d", node)] {
        store.put(key, &bytes, PutMode::Create).expect("memory");
    }
    let _ = open(&store);
});
