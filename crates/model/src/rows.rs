//! How the ranks that share a block share its rows, and what they tell each other about them.
//!
//! A parallel region begins with [`gather_rows`](Pass::gather_rows) and ends with [`reduce_rows`](Pass::reduce_rows). Each is the backward of the other, so
//! a block's backward makes the same two calls in the opposite order:
//!
//! | | between regions a rank holds | `gather_rows` | `reduce_rows` |
//! |---|---|---|---|
//! | tensor parallelism | all rows | nothing to do | all-reduce |
//! | with sequence parallelism | its share of the rows | all-gather | reduce-scatter |

use crate::block::{Batch, Pass};
use crate::error::Error;
use cairn_collectives::Communicator;
use cairn_collectives::numbers::{self, Number};
use cairn_kernels::{Buffer, Pool, Real};
use cairn_sharding::chunk;
use cairn_tensor::ReduceOp;
use std::ops::Range;

/// Which of the ranks that share a block this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its number.
    pub index: usize,
    /// How many there are.
    pub size: usize,
}

impl Share {
    /// The only one.
    pub const WHOLE: Self = Self { index: 0, size: 1 };

    /// The place in a group.
    pub fn of(group: &dyn Communicator) -> Self {
        Self {
            index: group.rank(),
            size: group.size(),
        }
    }

    /// Its part of `count` things; parts of later ranks may be shorter, or empty.
    pub fn range(self, count: usize) -> Range<usize> {
        chunk(count, self.size, self.index)
    }

    /// The lengths of the parts of all.
    pub fn lens(self, count: usize) -> Vec<usize> {
        let ranges = (0..self.size).map(|index| chunk(count, self.size, index));
        ranges.map(|range| range.len()).collect()
    }
}

/// Where a part of a block computes: its threads, its share of the parameters, and how many rows go through it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The threads.
    pub pool: &'a Pool,
    /// The share of the parameters.
    pub share: Share,
    /// The number of rows.
    pub rows: usize,
}

impl Batch {
    /// Whether there is one of everything for each token.
    ///
    /// # Errors
    /// [`Error::Length`] if not.
    pub fn check(&self) -> Result<(), Error> {
        let tokens = self.sequences.saturating_mul(self.length);
        check_len("the batch's tokens", self.tokens.len(), tokens)?;
        check_len("the batch's positions", self.positions.len(), tokens)?;
        check_len("the batch's documents", self.documents.len(), tokens)?;
        check_len("the batch's samples", self.samples.len(), self.sequences)
    }
}

impl Pass<'_> {
    /// Which of the ranks that share the blocks this is.
    pub fn share(&self) -> Share {
        Share::of(self.tp)
    }

    /// Where parts of a block compute, inside a parallel region.
    pub fn place(&self) -> Place<'_> {
        Place {
            pool: self.pool,
            share: self.share(),
            rows: self.batch.tokens.len(),
        }
    }

    /// The rows of activations that this rank holds between parallel regions.
    pub fn local_rows(&self) -> Range<usize> {
        let rows = self.batch.tokens.len();
        match self.sequence_parallel {
            true => self.share().range(rows),
            false => 0..rows,
        }
    }

    /// All rows, from the rows that each rank holds: the begin of a parallel region, and the backward of its end.
    ///
    /// # Collective
    /// # Errors
    /// If a rank of the group does not come along.
    pub fn gather_rows<R: Real + Number>(
        &self,
        local: Buffer<R>,
        width: usize,
    ) -> Result<Buffer<R>, Error> {
        if !self.sequence_parallel || self.tp.size() == 1 {
            return Ok(local);
        }
        let mut rows = self.pool.buffer(self.batch.tokens.len() * width);
        numbers::all_gather(self.tp, &local, &self.counts(width), &mut rows)?;
        Ok(rows)
    }

    /// The rows that each rank holds, summed over what every rank has of all rows: the end of a parallel region, and the backward of its begin.
    ///
    /// # Collective
    /// # Errors
    /// If a rank of the group does not come along.
    pub fn reduce_rows<R: Real + Number>(
        &self,
        mut rows: Buffer<R>,
        width: usize,
    ) -> Result<Buffer<R>, Error> {
        if !self.sequence_parallel || self.tp.size() == 1 {
            numbers::all_reduce(self.tp, ReduceOp::Sum, &mut rows)?;
            return Ok(rows);
        }
        let mut local = self.pool.buffer(self.local_rows().len() * width);
        numbers::reduce_scatter(
            self.tp,
            ReduceOp::Sum,
            &rows,
            &self.counts(width),
            &mut local,
        )?;
        Ok(local)
    }

    /// How many elements of rows of this width each rank holds.
    fn counts(&self, width: usize) -> Vec<usize> {
        let lens = self.share().lens(self.batch.tokens.len());
        lens.into_iter().map(|rows| rows * width).collect()
    }
}

/// An error if `actual` is not `expected`.
pub(crate) fn check_len(what: &'static str, actual: usize, expected: usize) -> Result<(), Error> {
    match actual == expected {
        true => Ok(()),
        false => Err(Error::Length {
            what,
            expected,
            actual,
        }),
    }
}
