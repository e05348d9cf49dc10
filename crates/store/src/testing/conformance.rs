//! One suite that tries to break the promises of [`Store`], for every implementation.

use std::sync::Arc;

use crate::Store;

mod listing;
mod objects;
mod races;
mod writers;

/// Sizes around the block size, and some that no block size divides.
const SIZES: [usize; 9] = [0, 1, 511, 4095, 4096, 4097, 12_288, 100_003, (1 << 20) + 17];

/// Runs every check on a new, empty store made by `make`.
///
/// # Panics
///
/// If the store breaks a promise; the message says which.
pub fn conformance(make: impl Fn() -> Arc<dyn Store>) {
    let checks = objects::CHECKS
        .iter()
        .chain(&writers::CHECKS)
        .chain(&listing::CHECKS)
        .chain(&races::CHECKS);
    for check in checks {
        check(&*make());
    }
}

/// A promise to break: panics if it succeeds.
type Check = fn(&dyn Store);

/// Bytes that differ from place to place and from seed to seed, the same every time.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The keys of all objects under `prefix`.
fn keys(store: &dyn Store, prefix: &str) -> Vec<String> {
    let found = store.list(prefix).expect("a folder can be listed");
    found.into_iter().map(|meta| meta.key).collect()
}
