//! An object larger than 32-bit lengths, with an odd tail.

use cairn_store::{ALIGNMENT, AlignedBuffer, Store};

use super::new_store;

/// Beyond 2³¹ bytes, where lengths and offsets of single calls overflow.
const LEN: u64 = (3 << 30) + 17;
const CHUNK: usize = 16 << 20;

/// Marks each block of the chunk with its own place in the object.
fn stamp(chunk: &mut [u8], offset: u64) {
    for (index, block) in chunk.chunks_mut(ALIGNMENT).enumerate() {
        let place = offset + (index * ALIGNMENT) as u64;
        let mark = place.to_le_bytes();
        let len = block.len().min(mark.len());
        block[..len].copy_from_slice(&mark[..len]);
    }
}

/// The chunks of the object: offset and length of each.
fn chunks() -> impl Iterator<Item = (u64, usize)> {
    (0..LEN).step_by(CHUNK).map(|offset| {
        let len = (LEN - offset).min(CHUNK as u64);
        (offset, usize::try_from(len).unwrap())
    })
}

#[test]
fn three_gibibytes_and_an_odd_tail_survive() {
    let (_folder, store) = new_store();
    let writer = store.create("big", LEN).unwrap();
    let mut buffer = AlignedBuffer::new(CHUNK);
    for (offset, len) in chunks() {
        stamp(&mut buffer[..len], offset);
        writer.write_at(offset, &buffer[..len]).unwrap();
    }
    writer.finish().unwrap();

    let reader = store.reader("big").unwrap();
    assert_eq!(reader.len(), LEN);
    let mut found = AlignedBuffer::new(CHUNK);
    for (offset, len) in chunks() {
        reader.read_at(offset, &mut found[..len]).unwrap();
        stamp(&mut buffer[..len], offset);
        assert!(found[..len] == buffer[..len], "at offset {offset}");
    }
}
