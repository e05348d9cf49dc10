//! Doors for tests and benchmarks into documents that ordinary callers never touch.

use crate::checksum::BLOCK_BYTES;
use crate::error::StoreContext;
use crate::keeper::Draft;
use crate::layout::Layout;
use crate::manifest::{DIGEST_DIGITS, Manifest};
use crate::packed::{Packer, Packing, packed_name};
use crate::part::parse_whole;
use crate::pool::CHUNK_BYTES;
use cairn_store::{Memory, PutMode, Store};

/// The bytes of a manifest with this layout and this many writers, as a committer would write it.
pub fn sample_manifest(layout: &Layout, writers: usize) -> Vec<u8> {
    let manifest = Manifest {
        step: 1,
        attempt: "0123456789abcdef".into(),
        created: "2026-01-01T00:00:00Z".into(),
        launch: None,
        line: 0,
        parent: None,
        program: "cairn".into(),
        layout: layout.clone(),
        values: [("step".to_string(), 1.into())].into(),
        tags: Vec::new(),
        assets: Default::default(),
        rewrite_of: None,
        len_bytes: layout.len_bytes(),
        delta: None,
        packed: None,
        parts: (0..writers)
            .map(|writer| format!("{writer:0DIGEST_DIGITS$x}"))
            .collect(),
    };
    manifest.encode()
}

/// Reads the bytes of a part, writes it and reads that; says how many blocks its data file has.
///
/// # Errors
/// If they are not a part.
///
/// # Panics
/// If it does not come back as it was.
pub fn parse_part(bytes: &[u8]) -> Result<usize, crate::Error> {
    let (read, blocks) = parse_whole("part", bytes)?;
    let written = read.part.encode(&blocks.crcs, blocks.map.as_ref());
    let (again, blocks_again) = parse_whole("part", &written).expect("what we write, we read");
    assert_eq!((&again.part, &blocks_again), (&read.part, &blocks));
    Ok(blocks.crcs.len())
}

/// Reads what a writer left with its keeper, writes it and reads that; says how many small files came along.
///
/// # Errors
/// If the bytes are no such draft.
///
/// # Panics
/// If it does not come back as it was.
pub fn parse_draft(bytes: &[u8]) -> Result<usize, crate::Error> {
    let draft = Draft::decode(bytes)?;
    let again = Draft::decode(&draft.encode()).expect("what we write, we read");
    assert_eq!(again, draft);
    Ok(draft.assets.len())
}

/// Packs a file as saves do.
pub fn pack(bytes: &[u8]) -> Vec<u8> {
    let (packing, mut packer) = (Packing::default(), Packer::new());
    let mut file = Vec::new();
    let per_chunk = CHUNK_BYTES / BLOCK_BYTES;
    let blocks: Vec<(u64, &[u8])> = (0..).zip(bytes.chunks(BLOCK_BYTES)).collect();
    for chunk in blocks.chunks(per_chunk) {
        chunk
            .iter()
            .for_each(|(number, block)| packer.add(*number, block));
        file.extend_from_slice(packing.place(&mut packer).1);
    }
    file.extend(packing.index(bytes.len() as u64).1);
    file
}

/// What comes out of a packed file.
///
/// # Errors
/// If it is none.
pub fn unpack(packed: &[u8]) -> Result<Vec<u8>, crate::Error> {
    let (store, key) = (Memory::new(), packed_name("file"));
    let put = store.put(&key, packed, PutMode::Create);
    put.doing(|| "put a file".into())?;
    let reader = crate::packed::open(&store, &key)?;
    let mut bytes = vec![0; usize::try_from(reader.len()).unwrap_or(0)];
    let read = reader.read_at(0, &mut bytes);
    read.doing(|| "read a file".into())?;
    Ok(bytes)
}

/// Makes this process write zeros for checksums, to measure what they cost. What it saves then is damaged by definition.
#[cfg(feature = "testing")]
pub fn skip_checksums(skip: bool) {
    crate::checksum::SKIPPED.store(skip, std::sync::atomic::Ordering::Relaxed);
}
