//! Doors for tests and benchmarks into documents that ordinary callers never touch.

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

/// Reads the bytes of a part and says how many blocks its data file has.
///
/// # Errors
/// If they are not a part.
pub fn parse_part(bytes: &[u8]) -> Result<usize, crate::Error> {
    parse_whole("part", bytes).map(|(_, blocks)| blocks.crcs.len())
}

/// Makes this process write zeros for checksums, to measure what they cost. What it saves then is damaged by definition.
#[cfg(feature = "testing")]
pub fn skip_checksums(skip: bool) {
    crate::checksum::SKIPPED.store(skip, std::sync::atomic::Ordering::Relaxed);
}
