//! From chunks of files to the memory of targets: read, check, scatter.

use super::damage;
use crate::Error;
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::error::StoreContext;
use crate::plan::{Chunk, FilePlan};
use crate::target::Wanted;
use cairn_tensor::Bands;
use std::ops::Range;

/// The bytes that are checked and then copied at once: they stay in a core's own cache in between.
const WINDOW_BYTES: usize = 4 * BLOCK_BYTES;

/// A chunk with what one process needs of it.
pub(crate) type View<'a> = (&'a FilePlan, &'a Chunk);

/// The targets of a load, as several threads fill them.
pub(crate) struct Filling<'a> {
    wanted: &'a [Wanted],
    bands: Vec<Bands<'a>>,
    verify: bool,
}

impl<'a> Filling<'a> {
    /// Fills `memory`, a buffer for each of `wanted`; if `verify`, with nothing that is not checked.
    pub(crate) fn new(wanted: &'a [Wanted], memory: Vec<&'a mut [u8]>, verify: bool) -> Self {
        Self {
            wanted,
            bands: memory.into_iter().map(Bands::new).collect(),
            verify,
        }
    }

    /// Reads a chunk into `bytes`, checks it, and fills what the targets need of it.
    pub(crate) fn read(&self, view: View, bytes: &mut [u8]) -> Result<(), Error> {
        self.read_for(view, &[view], bytes)
    }

    /// As [`Filling::read`], for a chunk that others need too: `all` views tell which tensors suffer if it is damaged.
    pub(crate) fn read_for(&self, own: View, all: &[View], bytes: &mut [u8]) -> Result<(), Error> {
        let (plan, chunk) = own;
        let key = &plan.file.key;
        plan.file
            .reader
            .read_at(chunk.offset, bytes)
            .doing(|| format!("read bytes {}.. of `{key}`", chunk.offset))?;
        let mut base = first_byte(chunk);
        for window in bytes.chunks(WINDOW_BYTES) {
            if self.verify {
                self.check(all, base, window)?;
            }
            self.scatter(own, base, window)?;
            base += window.len();
        }
        Ok(())
    }

    /// Fills what the targets need of a chunk that was read and checked; other bytes of it may be anything.
    pub(crate) fn place(&self, view: View, bytes: &[u8]) -> Result<(), Error> {
        self.scatter(view, first_byte(view.1), bytes)
    }

    /// Copies `bytes`, which lie at `base` in the file.
    fn scatter(&self, (plan, chunk): View, base: usize, bytes: &[u8]) -> Result<(), Error> {
        let range = base..base + bytes.len();
        for transfer in chunk.transfers_in(plan, &range) {
            let runs = transfer.runs.in_source(range.clone());
            let scattered = self.bands[transfer.target].scatter(bytes, base, runs);
            scattered.map_err(|source| Error::Copy {
                name: self.wanted[transfer.target].name.clone(),
                source,
            })?;
        }
        Ok(())
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
                return Err(damage(&file.key, range, &names, stored, actual));
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

fn first_byte(chunk: &Chunk) -> usize {
    usize::try_from(chunk.offset).unwrap_or(usize::MAX)
}
