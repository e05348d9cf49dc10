//! Memory for file images: allocated once, reused by every save, bounded if asked.

use cairn_store::AlignedBuffer;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The bytes captured, written and read at a time: large enough for a disk's full speed, and a multiple of every block size.
pub(crate) const CHUNK_BYTES: usize = 8 << 20;

/// A set of equal, page-aligned buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
    returned: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<AlignedBuffer>,
    made: usize,
}

impl Pool {
    /// A pool that never holds more than `limit_bytes` (rounded up to one buffer).
    pub(crate) fn new(limit_bytes: Option<u64>) -> Self {
        let limit = limit_bytes.map_or(usize::MAX, |bytes| {
            usize::try_from(bytes / CHUNK_BYTES as u64).unwrap_or(usize::MAX)
        });
        Self {
            state: Mutex::default(),
            returned: Condvar::new(),
            limit: limit.max(1),
        }
    }

    /// A buffer of [`CHUNK_BYTES`] with any contents. Waits for one to come back if all that are allowed are in use.
    pub(crate) fn take(&self) -> AlignedBuffer {
        let mut state = self.lock();
        loop {
            if let Some(buffer) = state.free.pop() {
                return buffer;
            }
            if state.made < self.limit {
                state.made += 1;
                drop(state);
                return AlignedBuffer::new(CHUNK_BYTES);
            }
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives a buffer back.
    pub(crate) fn give(&self, buffer: AlignedBuffer) {
        self.lock().free.push(buffer);
        self.returned.notify_one();
    }

    /// The bytes of all buffers, used and free.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.lock().made as u64 * CHUNK_BYTES as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
