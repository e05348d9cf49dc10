//! A step as a trace that Perfetto and Chrome draw: a process for each rank, a thread for each lane.
//!
//! Spans of one track must not overlap there, so a lane that several threads worked on at the same time has several tracks.
//! Each rank's clock starts at its own call of `save`.

use cairn::checkpoint::timeline::{Lane, Span, StepTimelines, Timeline};
use serde_json::{Value, json};
use std::time::Duration;

/// More tracks of a lane than any machine has threads.
const TRACKS_PER_LANE: usize = 1000;

/// The trace of a step.
pub(super) fn trace(step: &StepTimelines) -> Value {
    let events: Vec<Value> = step.ranks.iter().flat_map(rank_events).collect();
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

fn rank_events(timeline: &Timeline) -> Vec<Value> {
    let rank = timeline.rank;
    let name = format!("rank {rank}: {}", timeline.headline());
    let mut events = vec![
        metadata(rank, None, "process_name", &json!({"name": name})),
        metadata(
            rank,
            None,
            "process_sort_index",
            &json!({"sort_index": rank}),
        ),
    ];
    for (lane, spans) in &timeline.spans {
        for (track, spans) in tracks(spans).iter().enumerate() {
            // Thread 0 is the idle thread to some viewers.
            let thread = 1 + *lane as usize * TRACKS_PER_LANE + track;
            let name = match track {
                0 => lane.name().to_string(),
                _ => format!("{lane} {}", track + 1),
            };
            events.push(metadata(
                rank,
                Some(thread),
                "thread_name",
                &json!({"name": name}),
            ));
            let order = json!({"sort_index": thread});
            events.push(metadata(rank, Some(thread), "thread_sort_index", &order));
            events.extend(spans.iter().map(|span| event(rank, thread, *lane, span)));
        }
    }
    events
}

fn metadata(rank: usize, thread: Option<usize>, name: &str, args: &Value) -> Value {
    let thread = thread.unwrap_or_default();
    json!({"ph": "M", "pid": rank, "tid": thread, "name": name, "args": args})
}

fn event(rank: usize, thread: usize, lane: Lane, span: &Span) -> Value {
    json!({
        "ph": "X",
        "pid": rank,
        "tid": thread,
        "name": lane.name(),
        "cat": "save",
        "ts": microseconds(span.begin),
        "dur": microseconds(span.duration()),
        "args": {"bytes": span.len_bytes},
    })
}

/// Deals spans, sorted by their begin, to as few tracks as keep them apart.
pub(super) fn tracks(spans: &[Span]) -> Vec<Vec<Span>> {
    let mut tracks: Vec<Vec<Span>> = Vec::new();
    for span in spans {
        let free = tracks
            .iter_mut()
            .find(|track| track.last().is_none_or(|last| last.end <= span.begin));
        match free {
            Some(track) => track.push(*span),
            None => tracks.push(vec![*span]),
        }
    }
    tracks
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}
