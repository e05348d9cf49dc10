//! Memory that is used again and again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers that nobody uses at the moment. Clones share them, so that the background gives back what it was lent.
///
/// A buffer serves one length only: if a small part took the memory of a large whole, and stayed, sharing out would save nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Free>>);

#[derive(Debug, Default)]
struct Free {
    by_len: HashMap<usize, Vec<Vec<f32>>>,
    /// The elements of all buffers that were ever made.
    made: usize,
}

impl Buffers {
    /// A buffer of `len` elements with any contents.
    pub(crate) fn take(&self, len: usize) -> Vec<f32> {
        let mut free = self.lock();
        let found = free.by_len.get_mut(&len).and_then(Vec::pop);
        found.unwrap_or_else(|| {
            free.made += len;
            vec![0.0; len]
        })
    }

    /// A buffer of `len` zeros.
    pub(crate) fn zeros(&self, len: usize) -> Vec<f32> {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: Vec<f32>) {
        let mut free = self.lock();
        free.by_len.entry(buffer.len()).or_default().push(buffer);
    }

    /// The bytes of all buffers, lent or not.
    pub(crate) fn len_bytes(&self) -> u64 {
        (self.lock().made * size_of::<f32>()) as u64
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_for_its_length_alone_and_zeros_are_zeros() {
        let buffers = Buffers::default();
        let mut first = buffers.take(10);
        first.fill(7.0);
        let place = first.as_ptr();
        buffers.give(first);
        let shorter = buffers.take(9);
        assert_ne!(shorter.as_ptr(), place);
        let zeros = buffers.zeros(10);
        assert_eq!(zeros.as_ptr(), place);
        assert_eq!(zeros, [0.0; 10]);
        assert_eq!(buffers.len_bytes(), 19 * 4);
    }
}
