//! The numbers of saves, as `--json` prints them.

use super::Saved;
use super::values::Values;
use cairn::checkpoint::Checkpoint;
use cairn::checkpoint::timeline::{Lane, StepTimelines, Timeline};
use serde::Serialize;
use std::collections::BTreeMap;

/// A run, and one of its steps closely.
#[derive(Debug, Serialize)]
pub(super) struct Summary<'a> {
    pub(super) run: String,
    pub(super) step: &'a Step,
    pub(super) ranks: Vec<Rank>,
    pub(super) steps: Vec<&'a Step>,
    /// With `--values`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) values: Option<&'a Values>,
}

/// One step, in the numbers of the rank that took longest.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Step {
    pub(super) step: u64,
    pub(super) attempt: String,
    pub(super) started: Option<String>,
    #[serde(skip)]
    pub(super) started_unix_seconds: u64,
    pub(super) headline: Option<String>,
    pub(super) stall_seconds: Option<f64>,
    pub(super) durable_seconds: Option<f64>,
    pub(super) committed_seconds: Option<f64>,
    pub(super) write_bytes_per_second: Option<f64>,
    pub(super) len_bytes: u64,
    pub(super) capture: String,
    pub(super) world: usize,
    pub(super) slowest: Option<usize>,
    pub(super) missing: Vec<usize>,
}

/// One rank of a step.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rank {
    pub(super) rank: usize,
    pub(super) stall_seconds: f64,
    pub(super) fence_seconds: f64,
    pub(super) durable_seconds: f64,
    pub(super) commit_seconds: f64,
    pub(super) committed_seconds: f64,
    pub(super) len_bytes: u64,
    pub(super) lanes: BTreeMap<&'static str, LaneNumbers>,
    pub(super) notes: Vec<String>,
}

/// One lane of a rank.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LaneNumbers {
    pub(super) busy_seconds: f64,
    pub(super) len_bytes: u64,
    pub(super) bytes_per_second: Option<f64>,
}

impl<'a> Summary<'a> {
    pub(super) fn new(
        run: String,
        saved: &'a [Saved],
        chosen: usize,
        values: Option<&'a Values>,
    ) -> Self {
        Self {
            run,
            step: &saved[chosen].numbers,
            ranks: saved[chosen].ranks.clone(),
            steps: saved.iter().rev().map(|saved| &saved.numbers).collect(),
            values,
        }
    }
}

impl Step {
    pub(super) fn new(checkpoint: &Checkpoint, timelines: &StepTimelines) -> Self {
        let manifest = checkpoint.manifest();
        let (first, any) = (timelines.ranks.first(), !timelines.ranks.is_empty());
        Self {
            step: manifest.step,
            attempt: manifest.attempt.clone(),
            started: first.map(|rank| rank.started.clone()),
            started_unix_seconds: first
                .and_then(Timeline::started_unix_seconds)
                .unwrap_or_default(),
            headline: any.then(|| timelines.headline()),
            stall_seconds: any.then(|| timelines.stall().as_secs_f64()),
            durable_seconds: any.then(|| timelines.durable().as_secs_f64()),
            committed_seconds: any.then(|| timelines.total().as_secs_f64()),
            write_bytes_per_second: write_speed(&timelines.ranks),
            len_bytes: manifest.len_bytes,
            capture: first.map_or(String::new(), |rank| rank.capture.clone()),
            world: manifest.writers(),
            slowest: timelines.slowest().map(|rank| rank.rank),
            missing: timelines.missing.clone(),
        }
    }
}

impl Rank {
    pub(super) fn new(timeline: &Timeline) -> Self {
        let seconds = |lane| timeline.busy(lane).as_secs_f64();
        let lanes = timeline.spans.keys().map(|lane| {
            let numbers = LaneNumbers {
                busy_seconds: seconds(*lane),
                len_bytes: timeline.len_bytes_of(*lane),
                bytes_per_second: timeline.bytes_per_second(*lane),
            };
            (lane.name(), numbers)
        });
        Self {
            rank: timeline.rank,
            stall_seconds: timeline.stall().as_secs_f64(),
            fence_seconds: seconds(Lane::Fence),
            durable_seconds: timeline.durable().as_secs_f64(),
            commit_seconds: seconds(Lane::Commit),
            committed_seconds: timeline.total.as_secs_f64(),
            len_bytes: timeline.len_bytes,
            lanes: lanes.collect(),
            notes: timeline.notes.clone(),
        }
    }

    /// The bytes a second of a lane.
    pub(super) fn speed(&self, lane: Lane) -> Option<f64> {
        self.lanes.get(lane.name())?.bytes_per_second
    }
}

/// The slowest, the median and the fastest of some ranks, by when they had done their part; of fewer ranks, all.
pub(super) fn typical(ranks: &[Rank]) -> Vec<&Rank> {
    let mut order: Vec<&Rank> = ranks.iter().collect();
    order.sort_by(|a, b| b.durable_seconds.total_cmp(&a.durable_seconds));
    let last = order.len().saturating_sub(1);
    let mut picked = vec![0, last / 2, last];
    picked.dedup();
    let found = picked.into_iter().filter_map(|index| order.get(index));
    found.copied().collect()
}

/// The bytes a second that all ranks wrote together: the sum of what each wrote while it did.
fn write_speed(ranks: &[Timeline]) -> Option<f64> {
    let speeds = ranks
        .iter()
        .filter_map(|rank| rank.bytes_per_second(Lane::Write));
    speeds.reduce(|sum, speed| sum + speed)
}
