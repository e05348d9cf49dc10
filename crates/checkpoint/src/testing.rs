//! Doors for tests and benchmarks into documents that ordinary callers never touch.

use crate::keeper::Draft;
use crate::layout::Layout;
use crate::manifest::{DIGEST_DIGITS, Manifest};
use crate::part::parse_whole;

/// The bytes of a manifest with this layout and this many writers, as a committer would write it.
pub fn sample_manifest(layout: &Layout, writers: usize) -> Vec<u8> {
    let manifest = Manifest {
        step: 1,
        attempt: "0123456789abcdef".into(),
        created: "2026-01-01T00:00:00Z".into(),
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

/// Makes this process write zeros for checksums, to measure what they cost. What it saves then is damaged by definition.
#[cfg(feature = "testing")]
pub fn skip_checksums(skip: bool) {
    crate::checksum::SKIPPED.store(skip, std::sync::atomic::Ordering::Relaxed);
}
