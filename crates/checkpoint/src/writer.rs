//! Writes a file image in the background, chunk by chunk, while it is still being filled.

use crate::Error;
use crate::capture::Gate;
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::error::StoreContext;
use crate::pace::Pace;
use crate::pool::{CHUNK_BYTES, Pool};
use crate::sync::{Mutex, MutexGuard, PoisonError, Receiver, Sender, channel, thread};
use crate::timeline::{Lane, Recorder};
use cairn_device::Buffer;
use cairn_store::{ObjectWriter, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that write one file: two keep the disk busy while the third computes checksums.
const WRITE_THREADS: usize = 3;

/// A filled chunk on its way to the store.
pub(crate) struct Chunk {
    index: usize,
    len: usize,
    buffer: Buffer,
}

/// A file to be written, and who wants to know of it.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) key: String,
    pub(crate) len: u64,
    pub(crate) pool: Arc<Pool>,
    /// Counts the bytes that have left memory.
    pub(crate) written: Arc<AtomicU64>,
    pub(crate) recorder: Option<Recorder>,
    /// Says when to stop.
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) pace: Option<Arc<Pace>>,
}

impl Output {
    /// A file that nobody stops, slows down or watches.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        key: String,
        len: u64,
        pool: Arc<Pool>,
        written: Arc<AtomicU64>,
    ) -> Self {
        Self {
            store,
            key,
            len,
            pool,
            written,
            recorder: None,
            gate: None,
            pace: None,
        }
    }
}

/// Where the chunks of a capture go: a file being written, or averages being brought up to date. Send it chunk by chunk and close it.
pub(crate) struct Sink {
    sender: Sender<Chunk>,
    background: thread::JoinHandle<Result<Vec<u32>, Error>>,
}

/// What is left to do once a file is filled: wait until its bytes are durable.
pub(crate) struct Draining(thread::JoinHandle<Result<Vec<u32>, Error>>);

impl Chunk {
    /// Chunk number `index`, in the first `len` bytes of `buffer`.
    pub(crate) fn new(index: usize, len: usize, buffer: Buffer) -> Self {
        Self { index, len, buffer }
    }

    /// Where it begins in its image, and its bytes.
    pub(crate) fn parts(&self) -> (u64, &[u8]) {
        (
            self.index as u64 * CHUNK_BYTES as u64,
            &self.buffer[..self.len],
        )
    }

    /// The buffer, when its bytes are no longer needed.
    pub(crate) fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// The CRC of each block. The caller of a save does not wait for these.
    fn crcs(&self) -> Vec<u32> {
        let blocks = self.buffer[..self.len].chunks(BLOCK_BYTES);
        blocks.map(crc32c).collect()
    }
}

impl Sink {
    /// Starts writing an object.
    pub(crate) fn file(output: Output) -> Self {
        Self::start(move |receiver| output.write(receiver))
    }

    /// Starts a thread that takes chunks until the last sender is gone, and returns the CRCs of what it wrote.
    pub(crate) fn start(
        work: impl FnOnce(Receiver<Chunk>) -> Result<Vec<u32>, Error> + Send + 'static,
    ) -> Self {
        let (sender, receiver) = channel();
        let background = thread::spawn(move || work(receiver));
        Self { sender, background }
    }

    /// Hands a chunk to the background.
    pub(crate) fn send(&self, chunk: Chunk) {
        // The receiver lives until every sender is gone.
        let _ = self.sender.send(chunk);
    }

    /// Says that every chunk was sent.
    pub(crate) fn close(self) -> Draining {
        Draining(self.background)
    }

    /// Gives the file up, and waits until nothing more is done for it.
    pub(crate) fn abandon(self) {
        drop(self.sender);
        // It can only have failed, because chunks are missing.
        let _ = self.background.join();
    }
}

impl Draining {
    /// Waits until the file is durable, and returns the CRC of each of its blocks.
    pub(crate) fn finish(self) -> Result<Vec<u32>, Error> {
        match self.0.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// The chunks a file of `len` bytes has.
pub(crate) fn chunk_count(len: u64) -> usize {
    usize::try_from(len.div_ceil(CHUNK_BYTES as u64)).expect("a file's chunks can be counted")
}

/// The bytes of chunk `index` of a file of `len` bytes; `None` behind the last.
pub(crate) fn chunk_len(index: usize, len: u64) -> Option<usize> {
    let left = len.checked_sub(index as u64 * CHUNK_BYTES as u64)?;
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    (left > 0).then_some(left.min(CHUNK_BYTES))
}

impl Output {
    /// Takes chunks until the last sender is gone, writes them, and makes the object durable.
    fn write(self, receiver: Receiver<Chunk>) -> Result<Vec<u32>, Error> {
        let key = &self.key;
        let writer = self.store.create(key, self.len);
        let writer = match writer.doing(|| format!("create `{key}`")) {
            Ok(writer) => writer,
            Err(error) => {
                // Capture must not wait for buffers that nobody would give back.
                receiver
                    .iter()
                    .for_each(|chunk| self.pool.give(chunk.buffer));
                return Err(error);
            }
        };
        let crcs = self.write_chunks(writer.as_ref(), receiver)?;
        let _span = self
            .recorder
            .as_ref()
            .map(|recorder| recorder.span(Lane::Sync));
        writer.finish().doing(|| format!("make `{key}` durable"))?;
        Ok(crcs.into_values().flatten().collect())
    }

    /// Writes chunks on several threads; after a failure only gives their buffers back.
    fn write_chunks(
        &self,
        writer: &dyn ObjectWriter,
        receiver: Receiver<Chunk>,
    ) -> Result<BTreeMap<usize, Vec<u32>>, Error> {
        let receiver = Mutex::new(receiver);
        let crcs = Mutex::new(BTreeMap::new());
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let next = || lock(&receiver).recv().ok();
        thread::scope(|scope| {
            for _ in 0..WRITE_THREADS {
                scope.spawn(|| {
                    cairn_device::yield_to_others();
                    while let Some(chunk) = next() {
                        let failed = lock(&failure).is_some();
                        if !failed {
                            match self.write_chunk(writer, &chunk) {
                                Ok(chunk_crcs) => drop(lock(&crcs).insert(chunk.index, chunk_crcs)),
                                Err(error) => drop(lock(&failure).get_or_insert(error)),
                            }
                        }
                        self.pool.give(chunk.buffer);
                    }
                });
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(crcs.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn write_chunk(&self, writer: &dyn ObjectWriter, chunk: &Chunk) -> Result<Vec<u32>, Error> {
        if self.gate.as_ref().is_some_and(|gate| gate.is_cancelled()) {
            return Err(Error::Cancelled);
        }
        let len = chunk.len as u64;
        let span = |lane| {
            self.recorder
                .as_ref()
                .map(|recorder| recorder.span(lane).bytes(len))
        };
        let checksum = span(Lane::Checksum);
        let crcs = chunk.crcs();
        drop(checksum);
        if let Some(pace) = &self.pace {
            pace.wait_for(len);
        }
        let _write = span(Lane::Write);
        let (key, offset) = (&self.key, chunk.index as u64 * CHUNK_BYTES as u64);
        writer
            .write_at(offset, &chunk.buffer[..chunk.len])
            .doing(|| format!("write bytes {offset}.. of `{key}`"))?;
        self.written.fetch_add(len, Ordering::Relaxed);
        Ok(crcs)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
