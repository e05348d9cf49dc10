//! Chunks being filled, and chunks on their way from a device.

use super::fill::Filler;
use super::gate::Gate;
use super::lanes::failed;
use crate::Error;
use crate::pool::Pool;
use crate::sync::{AtomicUsize, Mutex, Ordering, PoisonError, thread};
use crate::timeline::{Lane, Recorder};
use crate::writer::{Chunk, Sink, chunk_len};
use cairn_device::{Buffer, Filling};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// The most chunks in a device's queue: enough to keep it copying, and short of what makes others wait for the driver.
const IN_FLIGHT: usize = 32;

/// A chunk on its way from a device: its number, its buffer, and since when.
pub(super) type Coming = (usize, Filling, Instant);

/// Chunks on their way, in the order they were asked for. What is given up goes back to the pool.
pub(super) struct Waiting {
    pub(super) coming: VecDeque<Coming>,
    pool: Arc<Pool>,
}

/// Of each chunk, the CRC of every copy's part of it when it was read first.
pub(super) type FirstRead = BTreeMap<usize, Vec<(usize, u32)>>;

/// Chunks being filled, by several threads.
pub(super) struct Issuing<'a> {
    pub(super) filler: Filler<'a>,
    pub(super) chunks: &'a [usize],
    pub(super) next: AtomicUsize,
    pub(super) pool: &'a Arc<Pool>,
    pub(super) writer: &'a Sink,
    pub(super) gate: &'a Gate,
    pub(super) recorder: &'a Recorder,
    pub(super) first_read: Option<&'a Mutex<FirstRead>>,
}

impl Issuing<'_> {
    /// Fills all chunks; those that devices are still copying are returned, behind those that were `waiting` before.
    pub(super) fn run(&self, threads: usize, mut waiting: Waiting) -> Result<Waiting, Error> {
        let threads = threads.clamp(1, self.chunks.len().max(1));
        if threads == 1 {
            return self.work(waiting);
        }
        let results = thread::scope(|scope| {
            let worker = || self.work(Waiting::new(self.pool));
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            let joined = workers.into_iter().map(|worker| worker.join());
            joined.collect::<Vec<_>>()
        });
        for result in results {
            match result {
                Ok(result) => waiting.extend(result?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(waiting)
    }

    fn work(&self, mut waiting: Waiting) -> Result<Waiting, Error> {
        while let Some(index) = self.chunks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if self.gate.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let buffer = self
                .buffer(*index, &mut waiting)
                .inspect_err(|_| self.stop())?;
            let begun = Instant::now();
            let filled = self.filler.fill(*index, buffer);
            let filling = filled.inspect_err(|_| {
                self.stop();
                self.pool.lose();
            })?;
            match filling.marks().is_empty() {
                true => self.arrive((*index, filling, begun))?,
                false => waiting.coming.push_back((*index, filling, begun)),
            }
            if waiting.coming.len() > IN_FLIGHT
                && let Some(one) = waiting.coming.pop_front()
            {
                self.arrive(one)?;
            }
        }
        Ok(waiting)
    }

    /// Lets the other threads find nothing more to do.
    fn stop(&self) {
        self.next.store(self.chunks.len(), Ordering::Relaxed);
    }

    /// A buffer to fill with chunk `index`. If all are in use, what is on its way is passed on first, and then one that was written comes back.
    fn buffer(&self, index: usize, waiting: &mut Waiting) -> Result<Buffer, Error> {
        loop {
            if let Some(buffer) = self.pool.take_for(index)? {
                return Ok(buffer);
            }
            match waiting.coming.pop_front() {
                Some(one) => self.arrive(one)?,
                None => {
                    let begun = Instant::now();
                    let buffer = self.pool.take()?;
                    self.gate.starve(begun.elapsed());
                    return Ok(buffer);
                }
            }
        }
    }

    pub(super) fn arrive_all(&self, mut waiting: Waiting) -> Result<(), Error> {
        while let Some(one) = waiting.coming.pop_front() {
            if self.gate.is_cancelled() {
                waiting.coming.push_back(one);
                return Err(Error::Cancelled);
            }
            self.arrive(one)?;
        }
        Ok(())
    }

    /// Waits for a chunk and hands it to the writer.
    fn arrive(&self, (index, filling, begun): Coming) -> Result<(), Error> {
        let arrived = filling.finish().map_err(failed);
        let buffer = arrived.inspect_err(|_| self.pool.lose())?;
        let len = chunk_len(index, self.filler.image.len).unwrap_or(0);
        self.recorder
            .add(Lane::Copy, begun, Instant::now(), len as u64);
        if let Some(first) = self.first_read {
            lock(first).insert(index, self.filler.crcs(index, &buffer));
        }
        self.writer.send(Chunk::new(index, len, buffer));
        Ok(())
    }
}

impl Waiting {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self {
            coming: VecDeque::new(),
            pool: pool.clone(),
        }
    }

    pub(super) fn extend(&mut self, mut other: Self) {
        self.coming.append(&mut other.coming);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for (_, filling, _) in self.coming.drain(..) {
            match filling.finish() {
                Ok(buffer) => self.pool.give(buffer),
                Err(_) => self.pool.lose(),
            }
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> crate::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
