//! What the disk can do: the ceiling for every save and load.

use cairn::store::{AlignedBuffer, Error, Store};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const CHUNK_BYTES: usize = 8 << 20;
const CHUNK: u64 = CHUNK_BYTES as u64;
const KEY: &str = "ceiling";

/// Bytes per second of plain large transfers, durable when writing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ceiling {
    pub(super) write: f64,
    pub(super) read: f64,
}

/// Writes and reads back about `bytes`, and removes them.
pub(super) fn measure(store: &dyn Store, bytes: u64) -> Result<Ceiling, Error> {
    let len = bytes.next_multiple_of(CHUNK);
    let start = Instant::now();
    let writer = store.create(KEY, len)?;
    in_parallel(2, len, |offset, buffer| writer.write_at(offset, buffer))?;
    writer.finish()?;
    let write = len as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    let reader = store.reader(KEY)?;
    in_parallel(4, len, |offset, buffer| reader.read_at(offset, buffer))?;
    let read = len as f64 / start.elapsed().as_secs_f64();
    store.delete(KEY)?;
    Ok(Ceiling { write, read })
}

/// Does `transfer` for every chunk, several at once.
fn in_parallel(
    threads: usize,
    len: u64,
    transfer: impl Fn(u64, &mut [u8]) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let next = AtomicU64::new(0);
    let failure = Mutex::new(Ok(()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buffer = AlignedBuffer::new(CHUNK_BYTES);
                buffer.fill(7);
                loop {
                    let offset = next.fetch_add(CHUNK, Ordering::Relaxed);
                    if offset >= len {
                        return;
                    }
                    if let Err(error) = transfer(offset, &mut buffer) {
                        next.store(len, Ordering::Relaxed);
                        *failure
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner) = Err(error);
                    }
                }
            });
        }
    });
    failure
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
