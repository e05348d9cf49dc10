//! Walking a copy that turns dims round: tiny runs far apart in the source, side by side in the target.

use std::ops::Range;

use super::iter::touching;
use super::{Loop, RunIter, Runs};

/// Runs of equal length that are far apart in the source and side by side in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gather {
    /// Where the first run starts in the source.
    pub source: usize,
    /// How far apart the runs start in the source.
    pub source_stride: usize,
    /// Where the first run starts in the target.
    pub target: usize,
    /// The number of runs.
    pub count: usize,
    /// The length of each: 1, 2, 4 or 8.
    pub run_bytes: usize,
}

/// The gathers of a copy inside a range of the source: see [`Runs::gathers_in`].
#[derive(Debug, Clone)]
pub struct Gathers {
    outer: RunIter,
    inner: Loop,
    run_bytes: usize,
    range: Range<usize>,
}

impl Runs {
    /// Whether the copy is of single elements that lie side by side in the target.
    pub fn is_gather(&self) -> bool {
        let tiny = matches!(self.run_bytes, 1 | 2 | 4 | 8);
        let inner = self.loops.last();
        tiny && inner.is_some_and(|inner| inner.target_stride == self.run_bytes)
    }

    /// What the copy takes of the source bytes `range`, as gathers; `None` if it is no gather, or a run may cross an end of the
    /// range.
    pub fn gathers_in(&self, range: Range<usize>) -> Option<Gathers> {
        let (inner, outer) = self.loops.split_last().filter(|_| self.is_gather())?;
        let whole = |place: usize| place.is_multiple_of(self.run_bytes);
        let in_step = self.loops.iter().all(|each| whole(each.source_stride));
        if !in_step
            || ![self.source_offset, range.start, range.end]
                .into_iter()
                .all(whole)
        {
            return None;
        }
        let span = (inner.count - 1).saturating_mul(inner.source_stride);
        let outer = Runs {
            run_bytes: span.saturating_add(self.run_bytes),
            loops: outer.to_vec(),
            ..*self
        };
        Some(Gathers {
            outer: outer.in_source(range.clone()),
            inner: *inner,
            run_bytes: self.run_bytes,
            range,
        })
    }
}

impl Iterator for Gathers {
    type Item = Gather;

    fn next(&mut self) -> Option<Gather> {
        loop {
            let (source, target) = self.outer.next_start()?;
            let runs = touching(&self.inner, self.run_bytes, source, &self.range);
            if !runs.is_empty() {
                return Some(Gather {
                    source: source + runs.start * self.inner.source_stride,
                    source_stride: self.inner.source_stride,
                    target: target + runs.start * self.inner.target_stride,
                    count: runs.len(),
                    run_bytes: self.run_bytes,
                });
            }
        }
    }
}
