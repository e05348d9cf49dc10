//! Who writes what: the rule by which every rank finds its share of a save alone.
//!
//! Ranks that hold the same pieces of a tensor are replicas. All tensors that one set of replicas shares, in order of their
//! names, form a stream of bytes; the stream is cut in equal parts, and replica `i` writes part `i`:
//!
//! ```text
//! replicas {0, 4}:   a ──────┬ b ───────────────┬ c ──┬ d ─────────
//!                    └── rank 0 writes ──┘└───── rank 4 writes ────┘
//!                                  b is cut between two of its rows
//! ```
//!
//! Shares are equal to within a row, most tensors stay whole, and nobody has to ask anybody: the rule needs only the
//! tensors that the rank itself holds. It is part of the format (`docs/format.md`), because a reader uses it to find a tensor's bytes.

pub(crate) mod cut;
mod stream;

use crate::Error;
use crate::layout::{Layout, first_rank};
use cairn_sharding::{Distribution, Piece, Region, TensorSpec};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use stream::{Streams, streams_of};

/// A piece of a tensor in a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Index of the tensor in the layout.
    pub tensor: usize,
    /// Which elements.
    pub piece: Piece,
    /// First byte, counted from the start of the file's data.
    pub offset: u64,
    /// Length.
    pub len_bytes: u64,
}

/// What one writer's file contains, in file order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriterItems {
    /// The items, without gaps.
    pub items: Vec<Item>,
    by_tensor: HashMap<usize, Vec<usize>>,
}

impl WriterItems {
    /// What `rank` writes of `layout`.
    ///
    /// # Errors
    /// If a tensor's pieces do not fill whole bytes.
    pub fn new(layout: &Layout, rank: usize) -> Result<Self, Error> {
        Self::of_streams(layout, rank, &streams_of(layout, rank)?)
    }

    fn of_streams(layout: &Layout, rank: usize, streams: &Streams) -> Result<Self, Error> {
        let mut items = streams.share_of_replica();
        items.extend(outside_streams(layout, rank)?);
        items.sort_by_cached_key(|item| {
            // Wide types first, so that every tensor of the file is aligned to its own element size.
            let bits = layout.spec(item.tensor).dtype().bits();
            (Reverse(bits), item.tensor, item.offset)
        });
        let mut writer = Self::default();
        let mut offset = 0;
        for (index, mut item) in items.into_iter().enumerate() {
            item.offset = offset;
            offset += item.len_bytes;
            writer.by_tensor.entry(item.tensor).or_default().push(index);
            writer.items.push(item);
        }
        Ok(writer)
    }

    /// The bytes of all items.
    pub fn len_bytes(&self) -> u64 {
        self.items
            .last()
            .map_or(0, |item| item.offset + item.len_bytes)
    }

    /// The items that belong to tensor `tensor`.
    pub fn of_tensor(&self, tensor: usize) -> impl Iterator<Item = &Item> {
        let indices = self.by_tensor.get(&tensor);
        indices
            .into_iter()
            .flatten()
            .map(|index| &self.items[*index])
    }
}

/// The assignment of a layout's bytes to writers, worked out on demand and remembered.
#[derive(Debug)]
pub struct Assignment {
    layout: Arc<Layout>,
    streams: Vec<Remembered<Streams>>,
    writers: Vec<Remembered<WriterItems>>,
}

/// What was worked out for one rank, by the first of many threads that ask for it.
#[derive(Debug)]
struct Remembered<T> {
    value: OnceLock<Arc<T>>,
    working: Mutex<()>,
}

impl Assignment {
    /// Prepares the assignment of `layout` to so many `writers`. No work is done yet.
    pub fn new(layout: Arc<Layout>, writers: usize) -> Self {
        Self {
            layout,
            streams: (0..writers).map(|_| Remembered::default()).collect(),
            writers: (0..writers).map(|_| Remembered::default()).collect(),
        }
    }

    /// What `rank` writes.
    ///
    /// # Errors
    /// If a tensor's pieces do not fill whole bytes.
    pub fn writer(&self, rank: usize) -> Result<Arc<WriterItems>, Error> {
        let Some(writer) = self.writers.get(rank) else {
            return Ok(Arc::new(WriterItems::new(&self.layout, rank)?));
        };
        writer.get(|| WriterItems::of_streams(&self.layout, rank, self.streams(rank)?.as_ref()))
    }

    /// The writers that together hold every piece of `tensor` that meets `region`, in order and without repeats.
    ///
    /// # Errors
    /// As [`Assignment::writer`].
    pub fn writers_of(&self, tensor: usize, region: &Region) -> Result<Vec<usize>, Error> {
        let spec = self.layout.spec(tensor);
        let mut ranks = match spec.distribution() {
            Distribution::Listed(listed) => listed
                .by_rank()
                .iter()
                .filter(|(_, held)| held.iter().any(|piece| piece.region.meets(region)))
                .map(|(rank, _)| *rank)
                .collect(),
            Distribution::Mesh(_) => {
                let mut ranks = Vec::new();
                for rank in spec.ranks_overlapping(region) {
                    ranks.extend(self.streams(rank)?.writers_of(tensor));
                }
                ranks
            }
        };
        ranks.sort_unstable();
        ranks.dedup();
        Ok(ranks)
    }

    fn streams(&self, rank: usize) -> Result<Arc<Streams>, Error> {
        let Some(streams) = self.streams.get(rank) else {
            return Ok(Arc::new(streams_of(&self.layout, rank)?));
        };
        streams.get(|| streams_of(&self.layout, rank))
    }
}

/// Pieces with no stream: listed pieces, which their holder writes, and empty tensors, which the first holder records.
fn outside_streams(layout: &Layout, rank: usize) -> Result<Vec<Item>, Error> {
    let mut items = Vec::new();
    for (tensor, (name, spec)) in layout.iter().enumerate() {
        match spec.distribution() {
            Distribution::Listed(listed) => {
                for (index, piece) in listed.pieces(rank).iter().enumerate() {
                    let len_bytes = cut::piece_bytes(name, spec, piece)?;
                    items.push(Item {
                        tensor,
                        piece: piece.clone(),
                        offset: index as u64,
                        len_bytes,
                    });
                }
            }
            Distribution::Mesh(sharding) => {
                if is_empty(spec) && first_rank(sharding) == rank {
                    items.push(Item {
                        tensor,
                        piece: Piece::whole(Region::whole(spec.shape())),
                        offset: 0,
                        len_bytes: 0,
                    });
                }
            }
        }
    }
    Ok(items)
}

fn is_empty(spec: &TensorSpec) -> bool {
    spec.shape().contains(&0)
}

impl<T> Remembered<T> {
    /// The value, which one thread works out while others wait.
    fn get(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<Arc<T>, Error> {
        if let Some(known) = self.value.get() {
            return Ok(known.clone());
        }
        let _working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.value.get() {
            return Ok(known.clone());
        }
        let value = Arc::new(work()?);
        Ok(self.value.get_or_init(|| value).clone())
    }
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self {
            value: OnceLock::new(),
            working: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! What many threads ask for at the same time is worked out once.

    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn one_thread_works_and_the_others_get_what_it_found() {
        let (remembered, worked) = (Remembered::default(), AtomicUsize::new(0));
        let failed = remembered.get(|| Err(Error::damaged("it", "is spoilt")));
        assert!(failed.is_err(), "a failure is not remembered");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let found = remembered.get(|| {
                        thread::yield_now();
                        Ok(worked.fetch_add(1, Ordering::Relaxed))
                    });
                    assert_eq!(*found.unwrap(), 0);
                });
            }
        });
        assert_eq!(worked.into_inner(), 1);
    }
}
