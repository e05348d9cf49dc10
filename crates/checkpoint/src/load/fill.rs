//! From chunks of files to the memory of targets: read, check, scatter.

use super::parcel::Needed;
use super::{LoadOptions, damage};
use crate::Error;
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::error::StoreContext;
use crate::plan::{Chunk, FilePlan, Transfer};
use crate::target::Wanted;
use cairn_tensor::{Bands, Run, Runs};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that are checked and then copied at once: they stay in a core's own cache in between.
const WINDOW_BYTES: usize = 4 * BLOCK_BYTES;

/// Targets of as much memory are out of all caches before anybody reads them.
const MIN_STREAMED_BYTES: usize = 64 << 20;

/// A chunk with what one process needs of it.
pub(crate) type View<'a> = (&'a FilePlan, &'a Chunk);

/// The targets of a load, as several threads fill them.
pub(crate) struct Filling<'a> {
    wanted: &'a [Wanted],
    bands: Vec<Bands<'a>>,
    verify: bool,
    progress: &'a AtomicU64,
}

impl<'a> Filling<'a> {
    /// Fills `memory`, a buffer for each of `wanted`.
    pub(crate) fn new(
        wanted: &'a [Wanted],
        memory: Vec<&'a mut [u8]>,
        options: &'a LoadOptions,
    ) -> Self {
        let len_bytes: usize = memory.iter().map(|memory| memory.len()).sum();
        let bands = memory.into_iter().map(Bands::new);
        let bands = bands.map(|bands| match len_bytes >= MIN_STREAMED_BYTES {
            true => bands.streamed(),
            false => bands,
        });
        Self {
            wanted,
            bands: bands.collect(),
            verify: options.verify,
            progress: &options.progress,
        }
    }

    /// Reads a chunk into `buffer`, checks it, and fills what the targets need of it.
    pub(crate) fn read(&self, view: View, buffer: &mut [u8]) -> Result<(), Error> {
        let (plan, chunk) = view;
        let first = first_byte(chunk);
        let gathers = chunk.transfers_in(plan, &(first..first + buffer.len()));
        let gathers = gathers.iter().any(|transfer| transfer.runs.is_gather());
        if !plan.file.reader.is_memory() || gathers {
            return self.read_for(view, &[view], buffer);
        }
        // What comes from memory goes through a core's own cache, and not through memory again.
        let len = buffer.len();
        for begin in (0..len).step_by(WINDOW_BYTES) {
            let window = &mut buffer[..WINDOW_BYTES.min(len - begin)];
            read(plan, chunk.offset + begin as u64, window)?;
            self.take_window(view, &[view], first + begin, window)?;
        }
        self.progress.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }

    /// As [`Filling::read`], for a chunk that others need too, of which all is in `buffer` then: `all` views tell which tensors suffer if it is
    /// damaged.
    pub(crate) fn read_for(&self, own: View, all: &[View], buffer: &mut [u8]) -> Result<(), Error> {
        let (plan, chunk) = own;
        let first = first_byte(chunk);
        read(plan, chunk.offset, buffer)?;
        let starts = (first..).step_by(WINDOW_BYTES);
        for (base, window) in starts.zip(buffer.chunks(WINDOW_BYTES)) {
            self.take_window(own, all, base, window)?;
        }
        // What is turned round on the way has the longer stretches in the target the more there is of the source.
        self.scatter(own, first, buffer, Runs::is_gather)?;
        let read = buffer.len() as u64;
        self.progress.fetch_add(read, Ordering::Relaxed);
        Ok(())
    }

    /// Checks bytes that lie at `base` in the file and copies what lies side by side.
    fn take_window(
        &self,
        own: View,
        all: &[View],
        base: usize,
        window: &[u8],
    ) -> Result<(), Error> {
        if self.verify {
            self.check(all, base, window)?;
        }
        self.scatter(own, base, window, |runs| !runs.is_gather())
    }

    /// Fills what the targets need of a chunk from what was packed of it for them.
    pub(crate) fn place(&self, view: View, packed: &[u8], needed: &Needed) -> Result<(), Error> {
        let (plan, chunk) = view;
        let base = first_byte(chunk);
        let range = base..base + chunk.len;
        let mut locator = needed.locator();
        for transfer in chunk.transfers_in(plan, &range) {
            let runs = transfer.runs.in_source(range.clone()).map(|run| Run {
                source: locator.find(run.source - base),
                ..run
            });
            let scattered = self.bands[transfer.target].scatter(packed, 0, runs);
            scattered.map_err(|source| self.misfit(transfer, source))?;
        }
        Ok(())
    }

    /// Copies `bytes`, which lie at `base` in the file, by those transfers that are `chosen`.
    fn scatter(
        &self,
        (plan, chunk): View,
        base: usize,
        bytes: &[u8],
        chosen: impl Fn(&Runs) -> bool,
    ) -> Result<(), Error> {
        let range = base..base + bytes.len();
        let transfers = chunk.transfers_in(plan, &range).into_iter();
        for transfer in transfers.filter(|transfer| chosen(&transfer.runs)) {
            let filled = self.bands[transfer.target].fill(bytes, base, &transfer.runs);
            filled.map_err(|source| self.misfit(transfer, source))?;
        }
        Ok(())
    }

    fn misfit(&self, transfer: &Transfer, source: cairn_tensor::Error) -> Error {
        Error::Copy {
            name: self.wanted[transfer.target].name.clone(),
            source,
        }
    }

    /// Compares each block of `bytes`, which lie at `base` in the file, with its checksum.
    fn check(&self, all: &[View], base: usize, bytes: &[u8]) -> Result<(), Error> {
        let Some((file, crcs)) = all
            .first()
            .and_then(|(plan, _)| Some((&plan.file, plan.file.crcs.as_ref()?)))
        else {
            return Ok(());
        };
        let first = base / BLOCK_BYTES;
        for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let stored = crcs.get(first + index).copied();
            let actual = crc32c(block);
            if stored != Some(actual) {
                let begin = base + index * BLOCK_BYTES;
                let range = begin..begin + block.len();
                let names = self.names_in(all, &range);
                return Err(damage(file, range, &names, stored, actual));
            }
        }
        Ok(())
    }

    /// The tensors that need bytes in `range` of the file.
    fn names_in(&self, all: &[View], range: &Range<usize>) -> Vec<&str> {
        let mut names = Vec::new();
        for (plan, chunk) in all {
            for transfer in chunk.transfers_in(plan, range) {
                let name = self.wanted[transfer.target].name.as_str();
                let needs_it = transfer.runs.in_source(range.clone()).next().is_some();
                if needs_it && !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }
}

/// Fills `bytes` with what lies at `offset` in a file.
fn read(plan: &FilePlan, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
    let read = plan.file.reader.read_at(offset, bytes);
    read.doing(|| format!("read bytes {offset}.. of `{}`", plan.file.key))
}

fn first_byte(chunk: &Chunk) -> usize {
    usize::try_from(chunk.offset).unwrap_or(usize::MAX)
}
