//! Takes the spans of a save while it runs, from any thread.

use super::span::{Span, coarsen};
use super::{Lane, Timeline};
use crate::clock::rfc3339;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The most spans kept for a lane. Beyond it, those with the shortest gaps between them become one.
pub const MAX_SPANS_PER_LANE: usize = 1024;

/// The most notes kept for a save.
pub const MAX_NOTES: usize = 64;

/// Takes the spans of one save. Clones write to the same timeline.
///
/// ```
/// use cairn_checkpoint::timeline::{Lane, Recorder};
///
/// let recorder = Recorder::new();
/// {
///     let _span = recorder.span(Lane::Write).bytes(4096);
///     // … the work …
/// }
/// recorder.note("pinned memory was refused");
/// ```
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Records>);

/// The records of one save. A lane has its own lock: threads that do different work never meet.
#[derive(Debug)]
struct Records {
    origin: Instant,
    started: SystemTime,
    lanes: [Mutex<Vec<Span>>; Lane::ALL.len()],
    words: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Words {
    capture: String,
    notes: Vec<String>,
}

impl Recorder {
    /// A recorder of a save that was called just now.
    pub fn new() -> Self {
        Self::since(Instant::now())
    }

    /// A recorder of a save that was called at `origin`.
    pub fn since(origin: Instant) -> Self {
        let now = SystemTime::now();
        Self(Arc::new(Records {
            origin,
            started: now.checked_sub(origin.elapsed()).unwrap_or(now),
            lanes: Default::default(),
            words: Mutex::default(),
        }))
    }

    /// Begins a span that ends when the guard is dropped.
    pub fn span(&self, lane: Lane) -> SpanGuard<'_> {
        SpanGuard {
            recorder: self,
            lane,
            begin: Instant::now(),
            len_bytes: 0,
        }
    }

    /// Adds a span that was measured elsewhere. What lies before the call of `save` is cut off.
    pub fn add(&self, lane: Lane, begin: Instant, end: Instant, len_bytes: u64) {
        let begin = self.at(begin);
        let span = Span {
            begin,
            end: self.at(end).max(begin),
            len_bytes,
        };
        let mut spans = lock(&self.0.lanes[lane as usize]);
        // Half of the room is made at once, so that making room costs each span next to nothing.
        if spans.len() >= MAX_SPANS_PER_LANE {
            *spans = coarsen(&spans, MAX_SPANS_PER_LANE / 2);
        }
        spans.push(span);
    }

    /// Keeps a sentence for the reader of the timeline, once.
    pub fn note(&self, text: impl Into<String>) {
        let text = text.into();
        let notes = &mut lock(&self.0.words).notes;
        if notes.len() < MAX_NOTES && !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// Says how the state is captured: `host image`, `device scratch`, `ring`.
    pub fn capture(&self, mode: impl Into<String>) {
        lock(&self.0.words).capture = mode.into();
    }

    /// All that was recorded until now; whose save it was, the caller fills in. Spans that have not ended are not in it.
    ///
    /// ```
    /// # use cairn_checkpoint::timeline::{Recorder, Timeline};
    /// # let recorder = Recorder::new();
    /// let timeline = Timeline { step: 100, rank: 0, world: 8, ..recorder.timeline() };
    /// ```
    pub fn timeline(&self) -> Timeline {
        let words = lock(&self.0.words);
        Timeline {
            started: rfc3339(self.0.started),
            total: self.0.origin.elapsed(),
            capture: words.capture.clone(),
            notes: words.notes.clone(),
            spans: self.spans(),
            ..Timeline::default()
        }
    }

    fn spans(&self) -> BTreeMap<Lane, Vec<Span>> {
        let lanes = Lane::ALL.into_iter().map(|lane| {
            let mut spans = lock(&self.0.lanes[lane as usize]).clone();
            spans.sort_unstable();
            (lane, spans)
        });
        lanes.filter(|(_, spans)| !spans.is_empty()).collect()
    }

    fn at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.0.origin)
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// A span that ends when this is dropped.
#[derive(Debug)]
#[must_use = "the span ends where this is dropped"]
pub struct SpanGuard<'a> {
    recorder: &'a Recorder,
    lane: Lane,
    begin: Instant,
    len_bytes: u64,
}

impl SpanGuard<'_> {
    /// Says how many bytes the span moves.
    pub fn bytes(mut self, len_bytes: u64) -> Self {
        self.len_bytes = len_bytes;
        self
    }
}

impl Drop for SpanGuard<'_> {
    fn drop(&mut self) {
        let (lane, begin) = (self.lane, self.begin);
        self.recorder
            .add(lane, begin, Instant::now(), self.len_bytes);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
