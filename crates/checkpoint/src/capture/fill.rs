//! Fills one chunk of a file image.

use super::copies::{Copies, Copy};
use super::lanes::{Lanes, failed};
use super::scratch::{Stage, Staged};
use super::turns::Shared;
use crate::Error;
use crate::bytes::Bytes;
use crate::checksum::crc32c;
use crate::image::Image;
use crate::pool::CHUNK_BYTES;
use crate::state::Outline;
use crate::sync::{Mutex, PoisonError};
use crate::writer::chunk_len;
use cairn_device::{Buffer, Filling, Memory, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Everything that says where the bytes of a chunk come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filler<'a> {
    pub(crate) image: &'a Image,
    pub(crate) copies: &'a Copies,
    pub(crate) outline: &'a Outline,
    pub(crate) bytes: &'a [Bytes<'a>],
    pub(crate) staged: &'a Staged,
    pub(crate) lanes: &'a Mutex<Lanes>,
}

/// A copy from a device that is about to begin.
struct Fetch<'a> {
    memory: &'a Memory,
    range: Range<usize>,
    at: usize,
}

impl<'a> Filler<'a> {
    /// The bytes of the image in chunk `index`.
    pub(crate) fn range(&self, index: usize) -> Range<u64> {
        let begin = index as u64 * CHUNK_BYTES as u64;
        let len = chunk_len(index, self.image.len).unwrap_or(0);
        begin..begin + len as u64
    }

    /// Whether chunk `index` has bytes that must be on their way before the caller goes on.
    pub(crate) fn cannot_wait(&self, index: usize) -> bool {
        let mut inside = self.copies.within(self.range(index));
        inside.any(|(number, copy)| {
            let bytes = &self.bytes[copy.tensor];
            !bytes.can_wait() && self.staged.stage(number) == Stage::Direct
        })
    }

    /// The turns of the bytes in chunk `index` that a fence must wait for: those that come right from memory that may change behind it.
    pub(crate) fn turns(&self, index: usize, shared: &Shared) -> BTreeSet<u32> {
        let inside = self.copies.within(self.range(index));
        let fenced = inside.filter(|(number, copy)| {
            let stays = self.bytes[copy.tensor].stays();
            !stays && self.staged.stage(*number) == Stage::Direct
        });
        fenced
            .flat_map(|(_, copy)| shared.turns(&self.bytes[copy.tensor]))
            .collect()
    }

    /// Puts chunk `index` into `buffer`: what is on the host now, what is on devices when their queues come to it.
    pub(crate) fn fill(&self, index: usize, buffer: Buffer) -> Result<Filling, Error> {
        let range = self.range(index);
        let mut filling = Filling::new(buffer);
        self.image
            .fill_header(range.start, clip(filling.host(), &range));
        let mut fetches: BTreeMap<String, Vec<Fetch>> = BTreeMap::new();
        for (number, copy) in self.copies.within(range.clone()) {
            match &self.bytes[copy.tensor] {
                Bytes::Borrowed(bytes) => {
                    for each in copy.moves(range.clone()) {
                        let target = &mut filling.host()[each.at..each.at + each.len];
                        target.copy_from_slice(&bytes[each.source..each.source + each.len]);
                    }
                }
                Bytes::Promised(promise) => {
                    let memory = promise
                        .wait()
                        .map_err(|reason| self.refused(copy, reason))?;
                    read(&memory, copy, &range, filling.host());
                }
                Bytes::Stored(stored) => {
                    for each in copy.moves(range.clone()) {
                        let target = &mut filling.host()[each.at..each.at + each.len];
                        let read = stored.read(each.source, target);
                        read.map_err(|reason| self.refused(copy, reason))?;
                    }
                }
                Bytes::Shared(memory) | Bytes::Fenced(memory, _) => match memory.place() {
                    Place::Host => read(memory, copy, &range, filling.host()),
                    Place::Device(device, _) => {
                        let name = device.name();
                        let staged = self.staged.stage(number);
                        let fetches = fetches.entry(name.to_string()).or_default();
                        self.fetches(copy, memory, staged, name, &range, fetches);
                    }
                },
            }
        }
        self.begin(&mut filling, fetches)?;
        Ok(filling)
    }

    /// The error that a tensor has no bytes, and why.
    fn refused(&self, copy: &Copy, reason: String) -> Error {
        Error::State {
            name: self.outline.name(copy.tensor).to_string(),
            reason,
        }
    }

    /// The CRC of what each copy brought to chunk `index`, with the copy's number.
    pub(crate) fn crcs(&self, index: usize, chunk: &[u8]) -> Vec<(usize, u32)> {
        let range = self.range(index);
        let crc = |(number, copy): (usize, &Copy)| {
            let item = copy.range();
            let at = |position: u64| {
                let inside = position.clamp(range.start, range.end) - range.start;
                usize::try_from(inside).expect("a place in a chunk")
            };
            (number, crc32c(&chunk[at(item.start)..at(item.end)]))
        };
        self.copies.within(range.clone()).map(crc).collect()
    }

    /// What one copy fetches for the chunk that is `range` of the image.
    fn fetches(
        &self,
        copy: &Copy,
        memory: &'a Memory,
        stage: Stage,
        device: &str,
        range: &Range<u64>,
        fetches: &mut Vec<Fetch<'a>>,
    ) {
        match stage {
            Stage::Joined => {}
            Stage::At(start) => {
                let part = copy.part(range);
                let at = copy.range().start.saturating_sub(range.start);
                push(
                    fetches,
                    Fetch {
                        memory: self.staged.scratch(device).memory(),
                        range: start + part.start..start + part.end,
                        at: usize::try_from(at).expect("it lies in the chunk"),
                    },
                );
            }
            Stage::Direct => {
                for each in copy.moves(range.clone()) {
                    push(
                        fetches,
                        Fetch {
                            memory,
                            range: each.source..each.source + each.len,
                            at: each.at,
                        },
                    );
                }
            }
        }
    }

    fn begin(
        &self,
        filling: &mut Filling,
        fetches: BTreeMap<String, Vec<Fetch>>,
    ) -> Result<(), Error> {
        if fetches.is_empty() {
            return Ok(());
        }
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        for (device, fetches) in fetches {
            let lane = lanes.lane(&device);
            for fetch in fetches {
                let (range, at) = (fetch.range, fetch.at);
                filling
                    .fetch(lane, fetch.memory, range, at)
                    .map_err(failed)?;
            }
            filling.close(lane).map_err(failed)?;
        }
        Ok(())
    }
}

/// Reads what one copy brings to the chunk that is `range` of the image.
fn read(memory: &Memory, copy: &Copy, range: &Range<u64>, out: &mut [u8]) {
    for each in copy.moves(range.clone()) {
        let target = &mut out[each.at..each.at + each.len];
        memory.read(each.source..each.source + each.len, target);
    }
}

/// Adds a fetch, to the one before it if both ends follow on.
fn push<'a>(fetches: &mut Vec<Fetch<'a>>, next: Fetch<'a>) {
    if let Some(last) = fetches.last_mut()
        && std::ptr::eq(last.memory, next.memory)
        && last.range.end == next.range.start
        && last.at + last.range.len() == next.at
    {
        last.range.end = next.range.end;
        return;
    }
    fetches.push(next);
}

fn clip<'a>(out: &'a mut [u8], range: &Range<u64>) -> &'a mut [u8] {
    let len = usize::try_from(range.end - range.start).unwrap_or(out.len());
    &mut out[..len]
}
