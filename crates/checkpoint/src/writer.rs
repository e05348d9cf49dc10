//! Writes a file image in the background, chunk by chunk, while it is still being filled.

use crate::Error;
use crate::checksum::block_crcs;
use crate::error::StoreContext;
use crate::pool::{CHUNK_BYTES, Pool};
use cairn_store::{AlignedBuffer, ObjectWriter, Store};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that write one file: two keep the disk busy while the other is between calls.
const WRITE_THREADS: usize = 2;

/// A filled chunk on its way to the store.
struct Chunk {
    index: usize,
    len: usize,
    buffer: AlignedBuffer,
}

/// A file being written. Fill it with [`FileWriter::fill`], then [`FileWriter::finish`] it.
pub(crate) struct FileWriter {
    sender: Sender<Chunk>,
    background: JoinHandle<Result<Vec<u32>, Error>>,
    pool: Arc<Pool>,
    len: u64,
}

/// What is left to do once a file is filled: wait until its bytes are durable.
pub(crate) struct Draining(JoinHandle<Result<Vec<u32>, Error>>);

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

    /// Fills every chunk by calling `fill(offset, bytes)`, with as many threads as pay, and hands them to the background.
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
                    let (writer, pool) = (&self, &self.pool);
                    while let Some((index, offset, len)) = next_chunk(&next, self.len) {
                        let mut buffer = pool.take();
                        if let Err(error) = fill(offset, &mut buffer[..len]) {
                            pool.give(buffer);
                            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                            next.store(chunks, Ordering::Relaxed);
                            return;
                        }
                        writer.send(index, len, buffer);
                    }
                });
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(self.close()),
        }
    }

    /// Hands chunk number `index`, filled up to `len` bytes, to the background.
    pub(crate) fn send(&self, index: usize, len: usize, buffer: AlignedBuffer) {
        // The receiver lives until every sender is gone.
        let _ = self.sender.send(Chunk { index, len, buffer });
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

fn next_chunk(next: &AtomicUsize, len: u64) -> Option<(usize, u64, usize)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    let offset = index as u64 * CHUNK_BYTES as u64;
    let left = usize::try_from(len.checked_sub(offset)?).unwrap_or(usize::MAX);
    (left > 0).then_some((index, offset, left.min(CHUNK_BYTES)))
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

fn write_chunks(
    writer: &dyn ObjectWriter,
    key: &str,
    receiver: Receiver<Chunk>,
    pool: &Pool,
    written: &AtomicU64,
) -> Result<BTreeMap<usize, Vec<u32>>, Error> {
    let receiver = Mutex::new(receiver);
    let result = Mutex::new(Ok(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..WRITE_THREADS {
            scope.spawn(|| {
                loop {
                    // An error means that every sender is gone and nothing is left.
                    let chunk = lock(&receiver).recv();
                    let Ok(chunk) = chunk else { return };
                    let failed = lock(&result).is_err();
                    let outcome = if failed {
                        Ok(Vec::new())
                    } else {
                        write_chunk(writer, key, &chunk)
                    };
                    written.fetch_add(chunk.len as u64, Ordering::Relaxed);
                    let index = chunk.index;
                    pool.give(chunk.buffer);
                    record(&result, index, outcome);
                }
            });
        }
    });
    result.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn write_chunk(writer: &dyn ObjectWriter, key: &str, chunk: &Chunk) -> Result<Vec<u32>, Error> {
    let bytes = &chunk.buffer[..chunk.len];
    let offset = chunk.index as u64 * CHUNK_BYTES as u64;
    let crcs = block_crcs(bytes).collect();
    writer
        .write_at(offset, bytes)
        .doing(|| format!("write bytes {offset}.. of `{key}`"))?;
    Ok(crcs)
}

fn record(
    result: &Mutex<Result<BTreeMap<usize, Vec<u32>>, Error>>,
    index: usize,
    outcome: Result<Vec<u32>, Error>,
) {
    let mut result = lock(result);
    match (result.as_mut(), outcome) {
        (Ok(table), Ok(crcs)) => {
            table.insert(index, crcs);
        }
        (Ok(_), Err(error)) => *result = Err(error),
        (Err(_), _) => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
