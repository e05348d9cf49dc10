//! Memory that direct I/O accepts.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The alignment of offsets, lengths and addresses that lets I/O bypass the page cache, in bytes.
pub const ALIGNMENT: usize = 4096;

/// [`ALIGNMENT`] as an offset.
pub(crate) const BLOCK: u64 = ALIGNMENT as u64;

/// A block of zeroed memory whose first byte is aligned to [`ALIGNMENT`].
///
/// ```
/// let mut buffer = cairn_store::AlignedBuffer::new(10_000);
/// buffer[..5].copy_from_slice(b"cairn");
/// assert_eq!(buffer.as_ptr() as usize % cairn_store::ALIGNMENT, 0);
/// assert_eq!(buffer.len(), 10_000);
/// ```
pub struct AlignedBuffer {
    /// Longer than `len` by enough to hold an aligned start. Never grows, so that start stays.
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// Allocates `len` zeroed bytes.
    ///
    /// # Panics
    ///
    /// If there is no memory for them, like any allocation.
    pub fn new(len: usize) -> Self {
        let memory = vec![0; len.saturating_add(ALIGNMENT)];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, len }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AlignedBuffer({} bytes)", self.len)
    }
}

/// Whether the first byte of `bytes` is aligned.
pub(crate) fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_length_are_aligned_and_zeroed() {
        for len in [0, 1, ALIGNMENT - 1, ALIGNMENT, ALIGNMENT + 1, 1 << 20] {
            let buffer = AlignedBuffer::new(len);
            assert!(is_aligned(&buffer));
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_moved_buffer_keeps_its_bytes_and_alignment() {
        let mut buffer = AlignedBuffer::new(ALIGNMENT);
        buffer.fill(7);
        let moved = Box::new(buffer);
        assert!(is_aligned(&moved));
        assert!(moved.iter().all(|byte| *byte == 7));
    }
}
