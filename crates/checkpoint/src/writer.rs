//! Writes a file image in the background, chunk by chunk, while it is still being filled.

use crate::Error;
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::error::StoreContext;
use crate::pool::{CHUNK_BYTES, Pool};
use cairn_store::{AlignedBuffer, ObjectWriter, Store};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that write one file: two keep the disk busy while the other is between calls.
const WRITE_THREADS: usize = 2;

/// A filled chunk on its way to the store.
pub(crate) struct Chunk {
    index: usize,
    len: usize,
    buffer: AlignedBuffer,
}

/// A file being written. Fill it, or send it chunk by chunk and close it.
pub(crate) struct FileWriter {
    sender: Sender<Chunk>,
    background: JoinHandle<Result<Vec<u32>, Error>>,
    pool: Arc<Pool>,
    len: u64,
}

/// What is left to do once a file is filled: wait until its bytes are durable.
pub(crate) struct Draining(JoinHandle<Result<Vec<u32>, Error>>);

impl Chunk {
    /// Chunk number `index`, in the first `len` bytes of `buffer`.
    pub(crate) fn fill<E>(
        index: usize,
        len: usize,
        mut buffer: AlignedBuffer,
        fill: impl FnOnce(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, (AlignedBuffer, E)> {
        match fill(index as u64 * CHUNK_BYTES as u64, &mut buffer[..len]) {
            Ok(()) => Ok(Self { index, len, buffer }),
            Err(error) => Err((buffer, error)),
        }
    }

    /// The CRC of each block. The caller of a save does not wait for these.
    fn crcs(&self) -> Vec<u32> {
        let blocks = self.buffer[..self.len].chunks(BLOCK_BYTES);
        blocks.map(crc32c).collect()
    }
}

impl FileWriter {
    /// Starts writing an object of `len` bytes under `key`. `written` counts the bytes that have left memory.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        key: String,
        len: u64,
        pool: Arc<Pool>,
        written: Arc<AtomicU64>,
    ) -> Self {
        let (sender, receiver) = channel();
        let shared = pool.clone();
        let background = thread::spawn(move || {
            write_all(store.as_ref(), &key, len, receiver, &shared, &written)
        });
        Self {
            sender,
            background,
            pool,
            len,
        }
    }

    /// Fills the file by calling `fill(offset, bytes)` for each of its chunks, on several threads, and hands it to the background.
    pub(crate) fn fill<E: Send>(
        self,
        threads: usize,
        fill: impl Fn(u64, &mut [u8]) -> Result<(), E> + Sync,
    ) -> Result<Draining, E> {
        let chunks = chunk_count(self.len);
        let next = AtomicUsize::new(0);
        let failure: Mutex<Option<E>> = Mutex::new(None);
        thread::scope(|scope| {
            for _ in 0..threads.clamp(1, chunks.max(1)) {
                scope.spawn(|| {
                    while let Some((index, len)) = next_chunk(&next, self.len) {
                        match Chunk::fill(index, len, self.pool.take(), &fill) {
                            Ok(chunk) => self.send(chunk),
                            Err((buffer, error)) => {
                                self.pool.give(buffer);
                                *lock(&failure) = Some(error);
                                next.store(chunks, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(self.close()),
        }
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

fn next_chunk(next: &AtomicUsize, len: u64) -> Option<(usize, usize)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    Some((index, chunk_len(index, len)?))
}

/// Takes chunks until the last sender is gone, writes them, and makes the object durable.
fn write_all(
    store: &dyn Store,
    key: &str,
    len: u64,
    receiver: Receiver<Chunk>,
    pool: &Pool,
    written: &AtomicU64,
) -> Result<Vec<u32>, Error> {
    let writer = store.create(key, len).doing(|| format!("create `{key}`"));
    let writer = match writer {
        Ok(writer) => writer,
        Err(error) => {
            // Capture must not wait for buffers that nobody would give back.
            receiver.iter().for_each(|chunk| pool.give(chunk.buffer));
            return Err(error);
        }
    };
    let crcs = write_chunks(writer.as_ref(), key, receiver, pool, written)?;
    writer.finish().doing(|| format!("make `{key}` durable"))?;
    Ok(crcs.into_values().flatten().collect())
}

/// Writes chunks on several threads; after a failure only gives their buffers back.
fn write_chunks(
    writer: &dyn ObjectWriter,
    key: &str,
    receiver: Receiver<Chunk>,
    pool: &Pool,
    written: &AtomicU64,
) -> Result<BTreeMap<usize, Vec<u32>>, Error> {
    let receiver = Mutex::new(receiver);
    let crcs = Mutex::new(BTreeMap::new());
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let next = || lock(&receiver).recv().ok();
    thread::scope(|scope| {
        for _ in 0..WRITE_THREADS {
            scope.spawn(|| {
                cairn_store::yield_to_others();
                while let Some(chunk) = next() {
                    let chunk_crcs = chunk.crcs();
                    if lock(&failure).is_none() {
                        if let Err(error) = write_chunk(writer, key, &chunk) {
                            lock(&failure).get_or_insert(error);
                        }
                        written.fetch_add(chunk.len as u64, Ordering::Relaxed);
                    }
                    lock(&crcs).insert(chunk.index, chunk_crcs);
                    pool.give(chunk.buffer);
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(crcs.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

fn write_chunk(writer: &dyn ObjectWriter, key: &str, chunk: &Chunk) -> Result<(), Error> {
    let offset = chunk.index as u64 * CHUNK_BYTES as u64;
    writer
        .write_at(offset, &chunk.buffer[..chunk.len])
        .doing(|| format!("write bytes {offset}.. of `{key}`"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
