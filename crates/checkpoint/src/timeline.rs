//! Where the time of a save went: spans on lanes, for one rank.
//!
//! ```text
//!            0 ms          4 ms                                          6.1 s
//! stall      ████████████████                                                     the training loop waits
//! copy       ██████████████                                                       the state is copied
//! write                 ███████████████████████████████████████                   bytes go to the store
//! sync                                                          ███               they are made durable
//! commit                                                           ██████████     all ranks agree
//! ```
//!
//! A [`Recorder`] takes the spans while a save runs; a [`Timeline`] is what is left of them: plain data, kept beside the
//! committed step as `00000.timeline`, and drawn by `cairn report`.

mod json;
mod lane;
mod recorder;
mod span;
mod stored;

pub use lane::Lane;
pub use recorder::{MAX_NOTES, MAX_SPANS_PER_LANE, Recorder, SpanGuard};
pub use span::Span;
pub use stored::StepTimelines;

use crate::clock::{duration_text, unix_seconds};
use std::collections::BTreeMap;
use std::time::Duration;

/// Where the time of one rank's save went. All times count from the call of `save`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    /// The step.
    pub step: u64,
    /// The attempt that holds it.
    pub attempt: String,
    /// The rank whose time this is.
    pub rank: usize,
    /// The ranks that saved together.
    pub world: usize,
    /// When `save` was called: RFC 3339, UTC.
    pub started: String,
    /// From the call of `save` until the step was committed.
    pub total: Duration,
    /// The bytes this rank wrote.
    pub len_bytes: u64,
    /// How the state was captured, in words: `host image`, `device scratch`, `ring`.
    pub capture: String,
    /// What a reader should know, in sentences: `pinned memory was refused: …`.
    pub notes: Vec<String>,
    /// What was done when. The spans of a lane are sorted by their begin; those of several threads may overlap.
    pub spans: BTreeMap<Lane, Vec<Span>>,
}

impl Timeline {
    /// The spans of a lane.
    pub fn lane(&self, lane: Lane) -> &[Span] {
        self.spans.get(&lane).map_or(&[], Vec::as_slice)
    }

    /// How long anything was done on a lane; threads that do it at the same time count once.
    pub fn busy(&self, lane: Lane) -> Duration {
        span::covered(&span::union(self.lane(lane)))
    }

    /// The bytes that went through a lane.
    pub fn len_bytes_of(&self, lane: Lane) -> u64 {
        let spans = self.lane(lane).iter();
        spans.fold(0, |sum, span| sum.saturating_add(span.len_bytes))
    }

    /// The bytes a second of a lane while it was busy; `None` if no bytes went through it.
    pub fn bytes_per_second(&self, lane: Lane) -> Option<f64> {
        let (bytes, busy) = (self.len_bytes_of(lane), self.busy(lane));
        (bytes > 0 && !busy.is_zero()).then(|| bytes as f64 / busy.as_secs_f64())
    }

    /// How long two lanes were busy at the same time.
    pub fn overlap(&self, one: Lane, other: Lane) -> Duration {
        let both = [self.lane(one), self.lane(other)].concat();
        let apart = self.busy(one) + self.busy(other);
        apart - span::covered(&span::union(&both))
    }

    /// How long training stood still: the time `save` held its caller, and what a fence added later.
    pub fn stall(&self) -> Duration {
        let held = [self.lane(Lane::Stall), self.lane(Lane::Fence)].concat();
        span::covered(&span::union(&held))
    }

    /// From the call of `save` until all work of this rank was done and only the commit was left.
    pub fn durable(&self) -> Duration {
        let own = self.spans.iter().filter(|(lane, _)| **lane != Lane::Commit);
        let ends = own.flat_map(|(_, spans)| spans).map(|span| span.end);
        ends.max().unwrap_or_default()
    }

    /// When `save` was called, in seconds since 1970.
    pub fn started_unix_seconds(&self) -> Option<u64> {
        unix_seconds(&self.started)
    }

    /// `training stall 4 ms of 6.1 s`.
    pub fn headline(&self) -> String {
        headline(self.stall(), self.total)
    }

    /// The same timeline with at most `most` spans on each lane: the shortest gaps are closed, and no byte is lost.
    pub fn coarse(mut self, most: usize) -> Self {
        for spans in self.spans.values_mut().filter(|spans| spans.len() > most) {
            *spans = span::coarsen(spans, most);
        }
        self
    }
}

fn headline(stall: Duration, total: Duration) -> String {
    let (stall, total) = (duration_text(stall), duration_text(total));
    format!("training stall {stall} of {total}")
}

#[cfg(test)]
mod tests;
