//! Writes a file image in the background, chunk by chunk, while it is still being filled.

mod object;

use crate::Error;
use crate::capture::Gate;
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::delta::{BlockHash, BlockPlace, Deltas, SavedBlocks, hash_block};
use crate::error::StoreContext;
use crate::pace::Pace;
use crate::packed::{PackedEntry, Packer};
use crate::pool::{CHUNK_BYTES, Lost, Pool};
use crate::sync::{Mutex, MutexGuard, PoisonError, Receiver, Sender, channel, thread};
use crate::timeline::{Lane, Recorder, SpanGuard};
use cairn_device::Buffer;
use cairn_store::Store;
use object::Object;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that write one file: two keep the disk busy while the third computes checksums.
const WRITE_THREADS: usize = 3;

/// The most threads that compress and write one file. They stand back behind others.
const PACK_THREADS: usize = 8;

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
    /// How it may refer to earlier files instead of repeating them, and later ones to it.
    pub(crate) deltas: Option<Deltas>,
    /// Whether its blocks are compressed.
    pub(crate) compress: bool,
}

/// What is known of a file once it is durable.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The CRC of each block.
    pub(crate) crcs: Vec<u32>,
    /// What later saves need to refer to it.
    pub(crate) blocks: Option<SavedBlocks>,
    /// What was stored instead, if it is packed.
    pub(crate) packed: Option<PackedEntry>,
}

/// What is known of the blocks of one chunk. Hashes and places are there if they are wanted.
#[derive(Debug, Default)]
struct Marks {
    crcs: Vec<u32>,
    hashes: Vec<Option<BlockHash>>,
    places: Vec<BlockPlace>,
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
            deltas: None,
            compress: false,
        }
    }
}

/// Where the chunks of a capture go: a file being written, or averages being brought up to date. Send it chunk by chunk and close it.
pub(crate) struct Sink {
    sender: Sender<Chunk>,
    pool: Arc<Pool>,
    background: thread::JoinHandle<Result<Written, Error>>,
}

/// What is left to do once a file is filled: wait until its bytes are durable.
pub(crate) struct Draining(thread::JoinHandle<Result<Written, Error>>);

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

    /// What `mark` says of each block. The caller of a save does not wait for this.
    fn marks<T>(&self, mark: impl Fn(&[u8]) -> T) -> Vec<T> {
        let blocks = self.buffer[..self.len].chunks(BLOCK_BYTES);
        blocks.map(mark).collect()
    }

    /// Fills the last block up with zeros.
    fn pad(&mut self) {
        let end = self.len.next_multiple_of(BLOCK_BYTES);
        self.buffer[self.len..end].fill(0);
    }
}

impl Sink {
    /// Starts writing an object.
    pub(crate) fn file(output: Output) -> Self {
        Self::start(output.pool.clone(), move |receiver| output.write(receiver))
    }

    /// Starts a thread that takes chunks until the last sender is gone, gives their buffers to `pool`, and returns what is known of what it wrote.
    pub(crate) fn start(
        pool: Arc<Pool>,
        work: impl FnOnce(Receiver<Chunk>) -> Result<Written, Error> + Send + 'static,
    ) -> Self {
        let (sender, receiver) = channel();
        let background = thread::spawn(move || work(receiver));
        Self {
            sender,
            pool,
            background,
        }
    }

    /// Hands a chunk to the background.
    pub(crate) fn send(&self, chunk: Chunk) {
        // The receiver lives until every sender is gone, unless the background panicked: then nobody else gives the buffer back.
        if let Err(refused) = self.sender.send(chunk) {
            self.pool.give(refused.0.buffer);
        }
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
    /// Waits until the file is durable, and returns what is known of its blocks.
    pub(crate) fn finish(self) -> Result<Written, Error> {
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
    fn write(self, receiver: Receiver<Chunk>) -> Result<Written, Error> {
        let object = match Object::begin(&self) {
            Ok(object) => object,
            Err(error) => {
                // Capture must not wait for buffers that nobody would give back.
                receiver
                    .iter()
                    .for_each(|chunk| self.pool.give(chunk.buffer));
                return Err(error);
            }
        };
        let marks = self.write_chunks(&object, receiver)?;
        let _span = self
            .recorder
            .as_ref()
            .map(|recorder| recorder.span(Lane::Sync));
        let ((changes, packed), mut all) = (object.finish(self.len)?, Marks::default());
        for chunk in marks.into_values() {
            all.crcs.extend(chunk.crcs);
            all.hashes.extend(chunk.hashes);
            all.places.extend(chunk.places);
        }
        // Nothing waits for what is written any more, so there is time.
        self.gate.as_ref().map_or(Ok(()), |gate| gate.meet())?;
        let blocks = self.deltas.map(|_| SavedBlocks {
            hashes: all.hashes,
            delta: changes.map(|changes| changes.finish(all.places)),
        });
        let crcs = all.crcs;
        Ok(Written {
            crcs,
            blocks,
            packed,
        })
    }

    /// Writes chunks on several threads; after a failure only gives their buffers back.
    fn write_chunks(
        &self,
        object: &Object,
        receiver: Receiver<Chunk>,
    ) -> Result<BTreeMap<usize, Marks>, Error> {
        let receiver = Mutex::new(receiver);
        let marks = Mutex::new(BTreeMap::new());
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let next = || lock(&receiver).recv().ok();
        thread::scope(|scope| {
            for _ in 0..self.threads() {
                scope.spawn(|| {
                    cairn_device::yield_to_others();
                    let mut packer = self.compress.then(Packer::new);
                    while let Some(mut chunk) = next() {
                        let lost = Lost::new(&self.pool);
                        let failed = lock(&failure).is_some();
                        if !failed {
                            match self.write_chunk(object, &mut chunk, &mut packer) {
                                Ok(found) => drop(lock(&marks).insert(chunk.index, found)),
                                Err(error) => drop(lock(&failure).get_or_insert(error)),
                            }
                        }
                        lost.passed_on();
                        self.pool.give(chunk.buffer);
                    }
                });
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(marks.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// How many threads write. In a simulation they do not depend on the machine.
    fn threads(&self) -> usize {
        if !self.compress || cfg!(feature = "shuttle") {
            return WRITE_THREADS;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.clamp(WRITE_THREADS, PACK_THREADS)
    }

    fn write_chunk(
        &self,
        object: &Object,
        chunk: &mut Chunk,
        packer: &mut Option<Packer>,
    ) -> Result<Marks, Error> {
        if self.gate.as_ref().is_some_and(|gate| gate.is_cancelled()) {
            return Err(Error::Cancelled);
        }
        let len = chunk.len as u64;
        let checksum = self.span(Lane::Checksum, len);
        let mut marks = Marks {
            crcs: chunk.marks(crc32c),
            ..Marks::default()
        };
        let first = chunk.index * (CHUNK_BYTES / BLOCK_BYTES);
        let hashes = || chunk.marks(|block| Some(hash_block(block)));
        marks.hashes = match (&self.deltas, &object.changes) {
            (None, _) => Vec::new(),
            (Some(_), None) => hashes(),
            (Some(_), Some(changes)) => changes.hashes(first, &marks.crcs, hashes),
        };
        drop(checksum);
        if let Some(changes) = &object.changes {
            marks.places = changes.place(first, &marks.hashes);
            chunk.pad();
        }
        let stretches = object.stretches(chunk, &marks.places);
        match (packer, &object.packing) {
            (Some(packer), Some(packing)) => {
                let span = self.span(Lane::Pack, len);
                for (offset, bytes) in stretches {
                    let blocks = chunk.buffer[bytes].chunks(BLOCK_BYTES);
                    let first = offset / BLOCK_BYTES as u64;
                    (first..)
                        .zip(blocks)
                        .for_each(|(n, block)| packer.add(n, block));
                }
                drop(span);
                let (offset, bytes) = packing.place(packer);
                self.put(object, offset, bytes)?;
            }
            _ => {
                for (offset, bytes) in stretches {
                    self.put(object, offset, &chunk.buffer[bytes])?;
                }
            }
        }
        self.written.fetch_add(len, Ordering::Relaxed);
        Ok(marks)
    }

    fn put(&self, object: &Object, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let len = bytes.len() as u64;
        if len == 0 {
            return Ok(());
        }
        if let Some(pace) = &self.pace {
            pace.wait_for(len);
        }
        let _write = self.span(Lane::Write, len);
        let written = object.writer.write_at(offset, bytes);
        written.doing(|| format!("write bytes {offset}.. of `{}`", object.key))
    }

    fn span(&self, lane: Lane, len: u64) -> Option<SpanGuard<'_>> {
        let recorder = self.recorder.as_ref()?;
        Some(recorder.span(lane).bytes(len))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
