//! A timeline as JSON: a `.timeline` file, and what other languages read.
//!
//! ```text
//! {"cairn":1,"kind":"timeline","step":100,"attempt":"4d1c…","rank":0,"world":8,"started":"2026-11-15T09:12:07Z",
//!  "total_ns":6100000000,"len_bytes":16060522496,"capture":"host image","notes":[],
//!  "spans":{"stall":[[0,4000000,0]],"write":[[900000,5200000000,16060522496]]}}
//! ```
//!
//! A span is its begin and end in nanoseconds after the call of `save`, and its bytes. Members and lanes that are not known are
//! passed over.

use super::{Lane, Span, Timeline};
use crate::Error;
use crate::manifest::check_version;
use crate::part::field;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

impl Timeline {
    /// The timeline as one line of JSON; `docs/format.md` names its members.
    pub fn to_json(&self) -> String {
        let spans: Map<String, Value> = self
            .spans
            .iter()
            .map(|(lane, spans)| (lane.name().into(), spans.iter().map(numbers).collect()))
            .collect();
        let members = json!({
            "cairn": 1,
            "kind": "timeline",
            "step": self.step,
            "attempt": self.attempt,
            "rank": self.rank,
            "world": self.world,
            "started": self.started,
            "total_ns": nanoseconds(self.total),
            "len_bytes": self.len_bytes,
            "capture": self.capture,
            "notes": self.notes,
            "spans": spans,
        });
        members.to_string() + "\n"
    }

    /// Reads a timeline; `file` names it in errors.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it makes no sense, [`Error::Version`] if it is too new.
    pub fn from_json(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let damaged = |reason: String| Error::damaged(file, reason);
        let members: Map<String, Value> =
            serde_json::from_slice(bytes).map_err(|e| damaged(format!("it is not JSON: {e}")))?;
        check_version(file, &members)?;
        Self::from_members(&members).map_err(damaged)
    }

    fn from_members(members: &Map<String, Value>) -> Result<Self, String> {
        let lanes: BTreeMap<String, Vec<[u64; 3]>> = field(members, "spans")?;
        let known = lanes
            .iter()
            .filter_map(|(name, spans)| Some((Lane::parse(name)?, spans)));
        let spans: Result<BTreeMap<Lane, Vec<Span>>, String> = known
            .map(|(lane, spans)| Ok((lane, read_spans(lane, spans)?)))
            .collect();
        Ok(Self {
            step: field(members, "step")?,
            attempt: field(members, "attempt")?,
            rank: field(members, "rank")?,
            world: field(members, "world")?,
            started: field(members, "started")?,
            total: Duration::from_nanos(field(members, "total_ns")?),
            len_bytes: field(members, "len_bytes")?,
            capture: field(members, "capture")?,
            notes: field(members, "notes")?,
            spans: spans?,
        })
    }
}

fn numbers(span: &Span) -> Value {
    json!([
        nanoseconds(span.begin),
        nanoseconds(span.end),
        span.len_bytes
    ])
}

/// The spans of a lane, sorted, none of them backwards.
fn read_spans(lane: Lane, numbers: &[[u64; 3]]) -> Result<Vec<Span>, String> {
    let read = |[begin, end, len_bytes]: &[u64; 3]| match begin <= end {
        true => Ok(Span {
            begin: Duration::from_nanos(*begin),
            end: Duration::from_nanos(*end),
            len_bytes: *len_bytes,
        }),
        false => Err(format!("a span of `{lane}` ends before it begins")),
    };
    let mut spans = numbers
        .iter()
        .map(read)
        .collect::<Result<Vec<Span>, String>>()?;
    spans.sort_unstable();
    Ok(spans)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
