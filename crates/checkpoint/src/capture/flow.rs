//! The chunks of one capture, on their way from the state to the writer.

use super::fill::Filler;
use super::gate::Gate;
use super::lanes::{Lanes, failed};
use super::picture::Picture;
use super::scratch::{ScratchCache, Staged};
use crate::Error;
use crate::bytes::Bytes;
use crate::pool::Pool;
use crate::sync::{AtomicUsize, Mutex, Ordering, PoisonError, thread};
use crate::timeline::{Lane, Recorder};
use crate::writer::{Chunk, Draining, Sink, chunk_count, chunk_len};
use cairn_device::{Buffer, Filling};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// The most chunks in a device's queue: enough to keep it copying, and short of what makes others wait for the driver.
const IN_FLIGHT: usize = 32;

/// How a state is captured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) threads: usize,
    pub(crate) scratch_bytes: u64,
    pub(crate) read_twice: bool,
}

/// A capture that has begun: everything that could not wait is on its way.
pub(crate) struct Flow {
    picture: Arc<Picture>,
    bytes: Vec<Bytes<'static>>,
    staged: Staged,
    lanes: Mutex<Lanes>,
    pool: Arc<Pool>,
    writer: Sink,
    pub(crate) gate: Arc<Gate>,
    recorder: Recorder,
    mode: Mode,
    /// Chunks that are still to be filled before a fence.
    fenced: Vec<usize>,
    /// Chunks that no fence waits for: everything in them is scratch memory of ours.
    behind: Vec<usize>,
    /// Chunks on their way from a device.
    waiting: Waiting,
}

/// A chunk on its way from a device: its number, its buffer, and since when.
type Coming = (usize, Filling, Instant);

/// Chunks on their way, in the order they were asked for. What is given up goes back to the pool.
struct Waiting {
    coming: VecDeque<Coming>,
    pool: Arc<Pool>,
}

/// What a capture needs besides the state.
pub(crate) struct Means<'a> {
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) scratch: &'a ScratchCache,
    pub(crate) gate: Arc<Gate>,
    pub(crate) recorder: Recorder,
    pub(crate) mode: Mode,
}

impl Flow {
    /// Puts everything that cannot wait on its way: what is only borrowed is captured when this returns.
    pub(crate) fn begin(
        picture: Arc<Picture>,
        bytes: &[Bytes],
        writer: Sink,
        means: Means,
    ) -> Result<Self, Error> {
        let Picture { image, copies, .. } = picture.as_ref();
        let mut lanes = Lanes::follow(bytes)?;
        if let Some(device) = lanes.devices().next() {
            means.pool.pin_for(device);
        }
        let packing = means.recorder.span(Lane::Pack);
        let budget = means.mode.scratch_bytes;
        let staged = Staged::pack(copies, bytes, &mut lanes, means.scratch, budget)?;
        drop(packing.bytes(staged.len_bytes));
        staged
            .notes
            .iter()
            .for_each(|note| means.recorder.note(note));
        let lanes = Mutex::new(lanes);
        let filler = Filler {
            image,
            copies,
            bytes,
            staged: &staged,
            lanes: &lanes,
        };
        let (now, later): (Vec<usize>, Vec<usize>) =
            (0..chunk_count(image.len)).partition(|index| filler.cannot_wait(*index));
        let (fenced, behind) = later
            .into_iter()
            .partition(|index| filler.is_fenced(*index));
        let issuing = Issuing {
            filler,
            chunks: &now,
            next: AtomicUsize::new(0),
            pool: means.pool,
            writer: &writer,
            gate: &means.gate,
            recorder: &means.recorder,
            first_read: None,
        };
        let waiting = issuing.run(means.mode.threads)?;
        hold_all(&lanes, &waiting)?;
        let owned = bytes.iter().map(outliving).collect();
        means
            .recorder
            .capture(mode_text(&staged, means.pool, image.len));
        Ok(Self {
            bytes: owned,
            staged,
            lanes,
            pool: means.pool.clone(),
            writer,
            gate: means.gate,
            recorder: means.recorder,
            mode: means.mode,
            fenced,
            behind,
            waiting,
            picture,
        })
    }

    /// Captures the rest, and returns when every byte is in our memory. Fences go as soon as the last copy is in its device's queue.
    pub(crate) fn finish(mut self) -> Result<Draining, Error> {
        let rest = self.rest();
        // Nobody waits for what will not come.
        self.gate.end();
        match rest {
            Ok(()) => Ok(self.writer.close()),
            Err(error) => {
                self.writer.abandon();
                Err(error)
            }
        }
    }

    fn rest(&mut self) -> Result<(), Error> {
        let first_read = self.mode.read_twice.then(Mutex::default);
        let mut waiting = std::mem::replace(&mut self.waiting, Waiting::new(&self.pool));
        waiting.extend(
            self.issuing(&self.fenced, &first_read)
                .run(self.threads())?,
        );
        if first_read.is_none() {
            let marks = lock(&self.lanes).marks()?;
            self.gate.issue(marks);
        }
        let behind = self.issuing(&self.behind, &first_read);
        waiting.extend(behind.run(self.threads())?);
        behind.arrive_all(waiting)?;
        if let Some(first) = &first_read {
            self.read_again(&lock(first))?;
        }
        let torn = self.gate.capture();
        torn.map_err(|names| Error::Torn { names })
    }

    /// A device's queue is one; more threads would only disturb its order.
    fn threads(&self) -> usize {
        let on_device = !lock(&self.lanes).is_empty();
        if on_device { 1 } else { self.mode.threads }
    }

    fn issuing<'a>(
        &'a self,
        chunks: &'a [usize],
        first_read: &'a Option<Mutex<FirstRead>>,
    ) -> Issuing<'a> {
        let Picture { image, copies, .. } = self.picture.as_ref();
        Issuing {
            filler: Filler {
                image,
                copies,
                bytes: &self.bytes,
                staged: &self.staged,
                lanes: &self.lanes,
            },
            chunks,
            next: AtomicUsize::new(0),
            pool: &self.pool,
            writer: &self.writer,
            gate: &self.gate,
            recorder: &self.recorder,
            first_read: first_read.as_ref(),
        }
    }

    /// Reads everything once more and compares, before a fence lets anybody change it.
    fn read_again(&self, first: &FirstRead) -> Result<(), Error> {
        let none = None;
        let filler = self.issuing(&[], &none).filler;
        let mut names = BTreeSet::new();
        for (index, crcs) in first {
            let filled = filler.fill(*index, self.pool.take()?);
            let buffer = filled.and_then(|filling| filling.finish().map_err(failed));
            let buffer = buffer.inspect_err(|_| self.pool.lose())?;
            for ((number, crc), (_, now)) in crcs.iter().zip(filler.crcs(*index, &buffer)) {
                if now != *crc {
                    let tensor = filler.copies.all()[*number].tensor;
                    names.insert(self.picture.tensor_name(tensor));
                }
            }
            self.pool.give(buffer);
        }
        match names.is_empty() {
            true => Ok(()),
            false => Err(Error::Torn {
                names: names.into_iter().collect(),
            }),
        }
    }
}

/// Of each chunk, the CRC of every copy's part of it when it was read first.
type FirstRead = BTreeMap<usize, Vec<(usize, u32)>>;

/// Chunks being filled, by several threads.
struct Issuing<'a> {
    filler: Filler<'a>,
    chunks: &'a [usize],
    next: AtomicUsize,
    pool: &'a Arc<Pool>,
    writer: &'a Sink,
    gate: &'a Gate,
    recorder: &'a Recorder,
    first_read: Option<&'a Mutex<FirstRead>>,
}

impl Issuing<'_> {
    /// Fills all chunks; those that devices are still copying are returned.
    fn run(&self, threads: usize) -> Result<Waiting, Error> {
        let threads = threads.clamp(1, self.chunks.len().max(1));
        if threads == 1 {
            return self.work();
        }
        let results = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.work())).collect();
            let joined = workers.into_iter().map(|worker| worker.join());
            joined.collect::<Vec<_>>()
        });
        let mut waiting = Waiting::new(self.pool);
        for result in results {
            match result {
                Ok(result) => waiting.extend(result?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(waiting)
    }

    fn work(&self) -> Result<Waiting, Error> {
        let mut waiting = Waiting::new(self.pool);
        while let Some(index) = self.chunks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if self.gate.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let buffer = self.buffer(&mut waiting).inspect_err(|_| self.stop())?;
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

    /// A buffer to fill. If all are in use, what is on its way is passed on first, and then one that was written comes back.
    fn buffer(&self, waiting: &mut Waiting) -> Result<Buffer, Error> {
        loop {
            if let Some(buffer) = self.pool.take_now()? {
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

    fn arrive_all(&self, mut waiting: Waiting) -> Result<(), Error> {
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
    fn new(pool: &Arc<Pool>) -> Self {
        Self {
            coming: VecDeque::new(),
            pool: pool.clone(),
        }
    }

    fn extend(&mut self, mut other: Self) {
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

/// Makes the streams of every device wait for the copies that could not.
fn hold_all(lanes: &Mutex<Lanes>, waiting: &Waiting) -> Result<(), Error> {
    if waiting.coming.is_empty() {
        return Ok(());
    }
    let mut lanes = lock(lanes);
    for (device, mark) in lanes.marks()? {
        lanes.hold(&device, mark.as_ref())?;
    }
    Ok(())
}

/// What is left of bytes once the caller's loan has ended.
fn outliving(bytes: &Bytes) -> Bytes<'static> {
    match bytes {
        // Captured: no chunk that is left looks at it.
        Bytes::Borrowed(_) => Bytes::Borrowed(&[]),
        Bytes::Shared(memory) => Bytes::Shared(memory.clone()),
        Bytes::Fenced(memory) => Bytes::Fenced(memory.clone()),
        Bytes::Promised(promise) => Bytes::Promised(promise.clone()),
    }
}

fn mode_text(staged: &Staged, pool: &Pool, len: u64) -> &'static str {
    match (pool.holds(len), staged.len_bytes > len / 2) {
        (false, _) => "ring",
        (true, true) => "device scratch",
        (true, false) => "host image",
    }
}

fn lock<T>(mutex: &Mutex<T>) -> crate::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
