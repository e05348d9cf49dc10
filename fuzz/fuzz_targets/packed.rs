//! Compressed data files: what is packed comes back, and what is no packed file is refused, or read as something of its own length.

#![no_main]

use cairn_checkpoint::testing::{pack, unpack};
use libfuzzer_sys::fuzz_target;

/// A file may say that it is longer than any that is read here; what it says it must have an index for.
const ENTRY_BYTES: usize = 12;
const FOOTER_BYTES: usize = 24;

fuzz_target!(|bytes: &[u8]| {
    let packed = pack(bytes);
    assert_eq!(unpack(&packed).expect("what we write, we read"), bytes);
    // As it is, it meets the checksums; with those put right, what lies behind them.
    let _ = unpack(bytes);
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    // Some blocks, so that entries and their bytes matter.
    let len = u64::from(u32::from_le_bytes(*len)) % (4 << 16);
    let entries = len.div_ceil(1 << 16) as usize * ENTRY_BYTES;
    if rest.len() < entries {
        return;
    }
    let (index, blocks) = rest.split_at(entries);
    let file = [
        blocks,
        &fitting(index, blocks.len()),
        &footer(index, blocks.len(), len),
    ]
    .concat();
    if let Ok(unpacked) = unpack(&file) {
        assert_eq!(unpacked.len() as u64, len);
    }
});

/// The entries, most of which name bytes that are there.
fn fitting(index: &[u8], blocks: usize) -> Vec<u8> {
    let mut fitting = index.to_vec();
    for entry in fitting.chunks_exact_mut(ENTRY_BYTES) {
        if entry[7] < 200 {
            let offset = usize::from(u16::from_le_bytes([entry[0], entry[1]])) % (blocks + 1);
            let len = usize::from(u16::from_le_bytes([entry[8], entry[9]])) % (blocks - offset + 1);
            entry[..8].copy_from_slice(&(offset as u64).to_le_bytes());
            entry[8..].copy_from_slice(&(len as u32).to_le_bytes());
        }
    }
    fitting
}

fn footer(index: &[u8], blocks: usize, len: u64) -> Vec<u8> {
    let crc = |bytes: &[u8]| {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
        (crc as u32).to_le_bytes()
    };
    let mut footer = Vec::with_capacity(FOOTER_BYTES);
    footer.extend(b"CAIRNPK1");
    footer.extend(len.to_le_bytes());
    footer.extend(crc(&fitting(index, blocks)));
    let own = crc(&footer);
    footer.extend(own);
    footer
}
