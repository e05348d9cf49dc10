//! Stretches of time, and what they cover together.

use std::time::Duration;

/// A stretch of work on a lane. Times count from the call of `save`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// When it began.
    pub begin: Duration,
    /// When it ended, not before it began.
    pub end: Duration,
    /// The bytes it moved.
    pub len_bytes: u64,
}

impl Span {
    /// How long it took.
    pub fn duration(&self) -> Duration {
        self.end.saturating_sub(self.begin)
    }
}

/// The stretches in which at least one of `spans` goes on: sorted, apart from each other, with the bytes of all.
pub(crate) fn union(spans: &[Span]) -> Vec<Span> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    join(&sorted, Duration::ZERO)
}

/// At most `most` stretches that cover `spans`: the shortest gaps between them are closed, and no byte is lost.
pub(crate) fn coarsen(spans: &[Span], most: usize) -> Vec<Span> {
    let apart = union(spans);
    if apart.len() <= most.max(1) {
        return apart;
    }
    let gaps = apart.windows(2).map(|pair| pair[1].begin - pair[0].end);
    let mut gaps: Vec<Duration> = gaps.collect();
    gaps.sort_unstable();
    let longest_closed = gaps[apart.len() - most.max(1) - 1];
    join(&apart, longest_closed)
}

/// The sum of the lengths of `spans`, which are apart.
pub(crate) fn covered(spans: &[Span]) -> Duration {
    spans.iter().map(Span::duration).sum()
}

/// Joins sorted spans that overlap or are at most `gap` apart.
fn join(sorted: &[Span], gap: Duration) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    for span in sorted {
        match joined.last_mut() {
            Some(last) if span.begin.saturating_sub(last.end) <= gap => {
                last.end = last.end.max(span.end);
                last.len_bytes = last.len_bytes.saturating_add(span.len_bytes);
            }
            _ => joined.push(*span),
        }
    }
    joined
}
