//! Memory that is used again and again.

use std::sync::{Arc, Mutex, PoisonError};

/// Buffers that nobody uses at the moment. Clones share them, so that the background gives back what it was lent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Vec<f32>>>>);

impl Buffers {
    /// A buffer of `len` elements with any contents.
    pub(crate) fn take(&self, len: usize) -> Vec<f32> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = free.iter().enumerate();
        let fitting = fitting.filter(|(_, buffer)| buffer.capacity() >= len);
        let smallest = fitting.min_by_key(|(_, buffer)| buffer.capacity());
        let found = smallest.map(|(index, _)| index);
        let mut buffer = found
            .map(|index| free.swap_remove(index))
            .unwrap_or_default();
        drop(free);
        buffer.resize(len, 0.0);
        buffer
    }

    /// A buffer of `len` zeros.
    pub(crate) fn zeros(&self, len: usize) -> Vec<f32> {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: Vec<f32>) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_buffer_that_fits_comes_back_and_zeros_are_zeros() {
        let buffers = Buffers::default();
        let [mut large, small] = [100, 10].map(|len| buffers.take(len));
        large.fill(7.0);
        let (large_at, small_at) = (large.as_ptr(), small.as_ptr());
        buffers.give(large);
        buffers.give(small);
        let again = buffers.take(9);
        assert_eq!((again.as_ptr(), again.len()), (small_at, 9));
        let zeros = buffers.zeros(50);
        assert_eq!(zeros.as_ptr(), large_at);
        assert_eq!(zeros, [0.0; 50]);
    }
}
