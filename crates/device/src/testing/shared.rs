//! Memory on the host that somebody goes on changing.

use super::Block;
use crate::memory::{Memory, Place};
use std::sync::Arc;

/// Memory on the host that is changed while others hold it, as a framework's tensors are.
#[derive(Debug, Clone)]
pub struct SharedBytes(Arc<Block>);

impl SharedBytes {
    /// So many zeros.
    pub fn new(len: usize) -> Self {
        Self(Arc::new(Block::new(vec![0; len])))
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, as a state has them.
    pub fn memory(&self) -> Memory {
        let address = self.0.start.expose_provenance() as u64;
        // SAFETY: the block is readable for as long as it lives, and it is its own owner.
        unsafe { Memory::new(Place::Host, address, self.len(), self.0.clone()) }
    }

    /// Puts `bytes` in, from byte `at` on. Who copies them meanwhile gets a torn copy.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len()), "the bytes fit");
        // SAFETY: the range lies in the block, and `bytes` are elsewhere: nobody has a reference into a block.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.0.start.add(at), bytes.len()) };
    }
}
