//! Walking the runs of a copy, all of them or those inside a range of the source.

use std::ops::Range;

use super::{Loop, Run, Runs};

/// The runs of a copy that touch a range of source bytes: see [`Runs::in_source`].
#[derive(Debug, Clone)]
pub struct RunIter {
    range: Range<usize>,
    run_bytes: usize,
    /// The innermost loop, where nearly all of the time goes, and where it stands.
    inner: Loop,
    at: Position,
    /// The loops around it, outermost first; each with the source bytes that one of its iterations spans.
    loops: Vec<(Loop, usize)>,
    /// Where those of them stand that are open: never more than `loops`.
    open: Vec<Position>,
}

/// Where an open loop stands.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    remaining: usize,
    source: usize,
    target: usize,
}

impl Position {
    /// The first iteration of a loop that touches `range`, if each spans `span` bytes.
    fn first(
        each: &Loop,
        span: usize,
        (source, target): (usize, usize),
        range: &Range<usize>,
    ) -> Self {
        let iterations = touching(each, span, source, range);
        Position {
            remaining: iterations.len(),
            source: source.saturating_add(each.source_stride.saturating_mul(iterations.start)),
            target: target.saturating_add(each.target_stride.saturating_mul(iterations.start)),
        }
    }

    /// Where the next iteration starts, in the source and in the target.
    fn next(&mut self, each: &Loop) -> Option<(usize, usize)> {
        self.remaining = self.remaining.checked_sub(1)?;
        let start = (self.source, self.target);
        self.source = self.source.saturating_add(each.source_stride);
        self.target = self.target.saturating_add(each.target_stride);
        Some(start)
    }
}

impl RunIter {
    pub(super) fn new(runs: &Runs, range: Range<usize>) -> RunIter {
        let once = Loop {
            count: 1,
            source_stride: 0,
            target_stride: 0,
        };
        let (inner, outer) = runs.loops.split_last().unwrap_or((&once, &[]));
        let mut span = extent(inner, runs.run_bytes);
        let mut loops = Vec::with_capacity(outer.len());
        for each in outer.iter().rev() {
            loops.push((*each, span));
            span = extent(each, span);
        }
        loops.reverse();
        let mut iter = RunIter {
            range,
            run_bytes: runs.run_bytes,
            inner: *inner,
            at: Position::default(),
            open: Vec::with_capacity(loops.len()),
            loops,
        };
        if !iter.range.is_empty() && runs.run_count() > 0 {
            iter.enter((runs.source_offset, runs.target_offset));
        }
        iter
    }

    /// Opens the next loop at its first iteration that touches the range.
    fn enter(&mut self, start: (usize, usize)) {
        match self.loops.get(self.open.len()) {
            Some((each, span)) => {
                let first = Position::first(each, *span, start, &self.range);
                self.open.push(first);
            }
            None => self.at = Position::first(&self.inner, self.run_bytes, start, &self.range),
        }
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
            if let Some(start) = self.at.next(&self.inner) {
                return Some(start);
            }
            let (each, _) = self.loops.get(self.open.len().checked_sub(1)?)?;
            match self.open.last_mut()?.next(each) {
                Some(start) => self.enter(start),
                None => _ = self.open.pop(),
            }
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

/// The source bytes that a loop spans if each iteration spans `span`.
fn extent(each: &Loop, span: usize) -> usize {
    let iterations = each.count.saturating_sub(1);
    span.saturating_add(each.source_stride.saturating_mul(iterations))
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
