//! Chunks being filled, and chunks on their way from a device.

use super::fill::Filler;
use super::gate::Gate;
use super::lanes::failed;
use crate::Error;
use crate::pool::{Lost, Pool};
use crate::sync::{AtomicUsize, Mutex, Ordering, PoisonError, thread};
use crate::timeline::{Lane, Recorder};
use crate::writer::{Chunk, Sink, chunk_len};
use cairn_device::{Buffer, Filling};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// The most chunks in a device's queue: enough to keep it copying, and short of what makes others wait for the driver.
const IN_FLIGHT: usize = 32;

/// A chunk on its way from a device.
pub(super) struct Coming {
    index: usize,
    filling: Filling,
    since: Instant,
    /// Whether it is read again later. What could not wait is not: it may change as soon as `save` has returned.
    is_first_read: bool,
}

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
    pub(super) fn run(&self, threads: usize, waiting: Waiting) -> Result<Waiting, Error> {
        let threads = threads.clamp(1, self.chunks.len().max(1));
        // One list for all threads: whoever finds no buffer passes on what any of them has on its way, also of those that have ended.
        let waiting = Mutex::new(waiting);
        if threads == 1 {
            self.work(&waiting)?;
            return Ok(into_inner(waiting));
        }
        let results = thread::scope(|scope| {
            let worker = || self.work(&waiting);
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            let joined = workers.into_iter().map(|worker| worker.join());
            joined.collect::<Vec<_>>()
        });
        for result in results {
            match result {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(into_inner(waiting))
    }

    fn work(&self, waiting: &Mutex<Waiting>) -> Result<(), Error> {
        while let Some(index) = self.chunks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if self.gate.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let buffer = self.buffer(*index, waiting).inspect_err(|_| self.stop())?;
            let begun = Instant::now();
            let lost = Lost::new(self.pool);
            let filled = self.filler.fill(*index, buffer);
            let filling = filled.inspect_err(|_| self.stop())?;
            lost.passed_on();
            let is_there = filling.marks().is_empty();
            let coming = Coming {
                index: *index,
                filling,
                since: begun,
                is_first_read: self.first_read.is_some(),
            };
            if is_there {
                self.arrive(coming)?;
                continue;
            }
            let first = lock(waiting).push(coming);
            self.pool.stir();
            if let Some(one) = first {
                self.arrive(one)?;
            }
        }
        Ok(())
    }

    /// Lets the other threads find nothing more to do.
    fn stop(&self) {
        self.next.store(self.chunks.len(), Ordering::Relaxed);
    }

    /// A buffer to fill with chunk `index`. If all are in use, what is on its way is passed on first, and then one that was written comes back.
    fn buffer(&self, index: usize, waiting: &Mutex<Waiting>) -> Result<Buffer, Error> {
        loop {
            let seen = self.pool.changes();
            if let Some(buffer) = self.pool.take_for(index)? {
                return Ok(buffer);
            }
            let first = lock(waiting).coming.pop_front();
            match first {
                Some(one) => self.arrive(one)?,
                None => {
                    let begun = Instant::now();
                    self.pool.wait_past(seen);
                    self.gate.starve(begun.elapsed());
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
    fn arrive(&self, coming: Coming) -> Result<(), Error> {
        let Coming {
            index,
            filling,
            since,
            is_first_read,
        } = coming;
        let lost = Lost::new(self.pool);
        let buffer = filling.finish().map_err(failed)?;
        lost.passed_on();
        let len = chunk_len(index, self.filler.image.len).unwrap_or(0);
        self.recorder
            .add(Lane::Copy, since, Instant::now(), len as u64);
        if let Some(first) = self.first_read.filter(|_| is_first_read) {
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

    /// Adds one, and returns the first if there are too many.
    fn push(&mut self, one: Coming) -> Option<Coming> {
        self.coming.push_back(one);
        let too_many = self.coming.len() > IN_FLIGHT;
        too_many.then(|| self.coming.pop_front()).flatten()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for coming in self.coming.drain(..) {
            match coming.filling.finish() {
                Ok(buffer) => self.pool.give(buffer),
                Err(_) => self.pool.lose(),
            }
        }
    }
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> crate::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
