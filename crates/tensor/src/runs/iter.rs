//! Walking the runs of a copy, all of them or those inside a range of the source.

use std::ops::Range;

use super::{Loop, Run, Runs};

/// The runs of a copy that touch a range of source bytes: see [`Runs::in_source`].
#[derive(Debug, Clone)]
pub struct RunIter {
    range: Range<usize>,
    run_bytes: usize,
    /// Outermost first; each loop with the source bytes that one of its iterations spans.
    loops: Vec<(Loop, usize)>,
    /// The open loops, outermost first: never more than `loops`.
    open: Vec<Position>,
}

/// Where an open loop stands.
#[derive(Debug, Clone, Copy)]
struct Position {
    remaining: usize,
    source: usize,
    target: usize,
}

impl RunIter {
    pub(super) fn new(runs: &Runs, range: Range<usize>) -> RunIter {
        // With a loop of one iteration around all others a copy has always one; of none, if empty.
        let once = Loop {
            count: usize::from(runs.run_count() > 0),
            source_stride: 0,
            target_stride: 0,
        };
        let mut span = runs.run_bytes;
        let mut loops = Vec::with_capacity(runs.loops.len() + 1);
        for &each in runs.loops.iter().rev().chain([&once]) {
            loops.push((each, span));
            span = span.saturating_add(
                each.source_stride
                    .saturating_mul(each.count.saturating_sub(1)),
            );
        }
        loops.reverse();
        let open = Vec::with_capacity(loops.len());
        let mut iter = RunIter {
            range,
            run_bytes: runs.run_bytes,
            loops,
            open,
        };
        if !iter.range.is_empty() {
            iter.enter(runs.source_offset, runs.target_offset);
        }
        iter
    }

    /// Opens the next loop at its first iteration that touches the range.
    fn enter(&mut self, source: usize, target: usize) {
        let (each, span) = &self.loops[self.open.len()];
        let iterations = touching(each, *span, source, &self.range);
        self.open.push(Position {
            remaining: iterations.len(),
            source: source.saturating_add(each.source_stride.saturating_mul(iterations.start)),
            target: target.saturating_add(each.target_stride.saturating_mul(iterations.start)),
        });
    }

    /// The part of the run at `source` that lies in the range.
    fn clip(&self, source: usize, target: usize) -> Run {
        let start = source.max(self.range.start);
        let end = source.saturating_add(self.run_bytes).min(self.range.end);
        Run {
            source: start,
            target: target.saturating_add(start - source),
            len: end - start,
        }
    }
}

impl RunIter {
    /// Where the next run that touches the range starts, in the source and in the target, all of it.
    pub(super) fn next_start(&mut self) -> Option<(usize, usize)> {
        loop {
            let (each, _) = self.loops[self.open.len().checked_sub(1)?];
            let position = self.open.last_mut()?;
            if position.remaining == 0 {
                self.open.pop();
                continue;
            }
            let Position { source, target, .. } = *position;
            position.remaining -= 1;
            position.source = source.saturating_add(each.source_stride);
            position.target = target.saturating_add(each.target_stride);
            if self.open.len() == self.loops.len() {
                return Some((source, target));
            }
            self.enter(source, target);
        }
    }
}

impl Iterator for RunIter {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let (source, target) = self.next_start()?;
        Some(self.clip(source, target))
    }
}

/// The iterations of a loop starting at `source`, each spanning `span` bytes, that touch `range`.
pub(super) fn touching(
    each: &Loop,
    span: usize,
    source: usize,
    range: &Range<usize>,
) -> Range<usize> {
    // They start less than `before` bytes away from `source`, and no less than `after`.
    let before = range.end.saturating_sub(source);
    let after = (range.start + 1).saturating_sub(source.saturating_add(span));
    let (start, end) = match each.source_stride {
        0 if before > 0 && after == 0 => (0, each.count),
        0 => (0, 0),
        stride => (
            after.div_ceil(stride),
            before.div_ceil(stride).min(each.count),
        ),
    };
    start.min(end)..end
}
