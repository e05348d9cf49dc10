//! Memory for file images: allocated once, reused by every save, bounded if asked.

use crate::Error;
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use cairn_device::{Buffer, Device, SlabOptions, slab};
use std::sync::Arc;

/// The bytes captured, written and read at a time: large enough for a disk's full speed, and a multiple of every block size.
pub(crate) const CHUNK_BYTES: usize = if cfg!(feature = "shuttle") {
    // One block: a small state has many chunks then, and thousands of orders are tried in little time.
    crate::checksum::BLOCK_BYTES
} else {
    8 << 20
};

/// Pinned memory comes in pieces of so many buffers, because pinning has a cost by the piece: 256 MiB.
const PINNED_BATCH: usize = 32;
/// Threads that find pages for memory that is about to be pinned.
const PREFAULT_THREADS: usize = 8;

/// A set of equal, page-aligned buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
    /// Whether it has a place for every chunk of one image.
    is_image: bool,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Buffer>,
    /// The chunks of an image that were not taken yet.
    places: Vec<Option<Buffer>>,
    made: usize,
    /// Counts what those who wait for a buffer should look at: one that came back or was made, or one on its way that they can pass on.
    changes: u64,
    /// Why there will be no more than were made, short of the limit.
    exhausted: bool,
    pin: Option<Arc<dyn Device>>,
    notes: Vec<String>,
}

impl Pool {
    /// A pool that never holds more than `limit_bytes` (rounded up to one buffer).
    pub(crate) fn new(limit_bytes: Option<u64>) -> Self {
        let limit = limit_bytes.map_or(usize::MAX, |bytes| {
            usize::try_from(bytes / CHUNK_BYTES as u64).unwrap_or(usize::MAX)
        });
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            limit: limit.max(1),
            is_image: false,
        }
    }

    /// A pool whose buffers are the chunks of an image, each at its place. They are taken once: what was captured stays as it is.
    pub(crate) fn image(places: Vec<Buffer>, notes: Vec<String>) -> Self {
        let pool = Self {
            is_image: true,
            ..Self::new(Some(0))
        };
        let mut state = pool.lock();
        state.places = places.into_iter().map(Some).collect();
        notes.into_iter().for_each(|note| state.note(note));
        drop(state);
        pool
    }

    /// Has buffers pinned for `device` from now on. Those that lie around unpinned are freed.
    pub(crate) fn pin_for(&self, device: &Arc<dyn Device>) {
        let mut state = self.lock();
        if state.pin.is_none() {
            state.pin = Some(device.clone());
            state.release();
        }
    }

    /// A buffer of [`CHUNK_BYTES`] with any contents. Waits for one to come back if all that are allowed are in use.
    pub(crate) fn take(&self) -> Result<Buffer, Error> {
        loop {
            let seen = self.changes();
            if let Some(buffer) = self.take_now()? {
                return Ok(buffer);
            }
            self.wait_past(seen);
        }
    }

    /// How often something changed. Who looks for a buffer counts first, and then waits for [more](Self::wait_past).
    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Waits until something has changed since that was counted.
    pub(crate) fn wait_past(&self, seen: u64) {
        let mut state = self.lock();
        while state.changes == seen {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells those who wait for a buffer that there is one on its way, which they can pass on.
    pub(crate) fn stir(&self) {
        self.change(&mut self.lock());
    }

    fn change(&self, state: &mut State) {
        state.changes += 1;
        self.changed.notify_all();
    }

    /// A buffer for chunk `index` of an image, unless all that are allowed are in use.
    pub(crate) fn take_for(&self, index: usize) -> Result<Option<Buffer>, Error> {
        let place = self.lock().places.get_mut(index).and_then(Option::take);
        match place {
            Some(buffer) => Ok(Some(buffer)),
            None => self.take_now(),
        }
    }

    /// A buffer, unless all that are allowed are in use.
    pub(crate) fn take_now(&self) -> Result<Option<Buffer>, Error> {
        let mut state = self.lock();
        if let Some(buffer) = state.free.pop() {
            return Ok(Some(buffer));
        }
        if state.made >= self.limit || state.exhausted {
            return Ok(None);
        }
        self.grow(state).map(|mut buffers| {
            let one = buffers.pop();
            self.add(buffers);
            one
        })
    }

    /// Makes buffers until there are `len_bytes` of them, as far as allowed.
    pub(crate) fn prepare(&self, len_bytes: u64) -> Result<(), Error> {
        loop {
            let state = self.lock();
            let enough = state.made as u64 * CHUNK_BYTES as u64 >= len_bytes;
            if enough || state.made >= self.limit || state.exhausted {
                return Ok(());
            }
            let buffers = self.grow(state)?;
            self.add(buffers);
        }
    }

    fn add(&self, buffers: Vec<Buffer>) {
        let mut state = self.lock();
        state.free.extend(buffers);
        self.change(&mut state);
    }

    /// Frees what is not in use.
    pub(crate) fn release(&self) {
        self.lock().release();
    }

    /// Gives a buffer back.
    pub(crate) fn give(&self, buffer: Buffer) {
        if buffer.is_shared() {
            // The place of a chunk, whose bytes are still wanted.
            return;
        }
        self.add(vec![buffer]);
    }

    /// Counts a buffer that will not come back.
    pub(crate) fn lose(&self) {
        let mut state = self.lock();
        // Places of an image were not made here.
        state.made = state.made.saturating_sub(1);
        // Who waits would wait for ever if the last one was lost: memory is asked for again.
        state.exhausted &= state.made > 0;
        self.change(&mut state);
    }

    /// The bytes of all buffers, used and free.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.lock().made as u64 * CHUNK_BYTES as u64
    }

    /// Whether an image of `len` bytes fits as a whole.
    pub(crate) fn holds(&self, len: u64) -> bool {
        if self.is_image {
            return true;
        }
        let state = self.lock();
        let most = if state.exhausted {
            state.made
        } else {
            self.limit
        };
        len.div_ceil(CHUNK_BYTES as u64) <= most as u64
    }

    /// What users should know of this memory.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.lock().notes.clone()
    }

    /// Makes one more buffer, or several if they are pinned. The lock is not held meanwhile.
    fn grow(&self, mut state: MutexGuard<'_, State>) -> Result<Vec<Buffer>, Error> {
        let pin = state.pin.clone();
        let batch = if pin.is_some() { PINNED_BATCH } else { 1 };
        let count = batch.min(self.limit - state.made);
        state.made += count;
        drop(state);
        let options = SlabOptions {
            prefault_threads: if pin.is_some() { PREFAULT_THREADS } else { 0 },
            pin,
        };
        let grown = slab(count, CHUNK_BYTES, &options);
        let mut state = self.lock();
        match grown {
            Ok((buffers, refusal)) => {
                if let Some(refusal) = refusal {
                    state.note(format!("staging memory could not be pinned, so copies from the device are slower: {refusal}"));
                    // The next ones would be refused as well.
                    state.pin = None;
                }
                Ok(buffers)
            }
            Err(_) if state.made > count => {
                state.made -= count;
                state.exhausted = true;
                self.change(&mut state);
                let made = state.made as u64 * CHUNK_BYTES as u64;
                state.note(format!(
                    "memory ran out after {made} bytes of staging, which are now used as a ring"
                ));
                Ok(Vec::new())
            }
            Err(source) => {
                state.made -= count;
                self.change(&mut state);
                Err(Error::Capture { source })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer in somebody's hands: if they drop this, it counts as lost, also when they panic. Whoever waits for one hears of it.
#[must_use]
pub(crate) struct Lost<'a>(&'a Pool);

impl<'a> Lost<'a> {
    pub(crate) fn new(pool: &'a Pool) -> Self {
        Self(pool)
    }

    /// It is in other hands now.
    pub(crate) fn passed_on(self) {
        std::mem::forget(self);
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        self.0.lose();
    }
}

impl State {
    fn release(&mut self) {
        self.made -= self.free.len();
        self.free.clear();
        self.exhausted = false;
    }

    fn note(&mut self, text: String) {
        tracing::warn!("{text}");
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}
