//! Scalars of every step, as an event file that TensorBoard reads.

use super::Saved;
use super::summary::Step;
use crate::events::{header, scalar};

/// The name and the bytes of an event file. The same run gives the same name, so that a later report takes its place.
pub(super) fn events(saved: &[Saved]) -> (String, Vec<u8>) {
    let steps = saved.iter().map(|saved| &saved.numbers);
    let begin = steps
        .clone()
        .map(|step| step.started_unix_seconds)
        .min()
        .unwrap_or(0);
    let mut file = header(begin as f64);
    for step in steps {
        let time = step.started_unix_seconds as f64;
        for (tag, value) in scalars(step) {
            file.extend(scalar(time, step.step, tag, value));
        }
    }
    (format!("events.out.tfevents.{begin:010}.cairn"), file)
}

fn scalars(step: &Step) -> Vec<(&'static str, f64)> {
    let all = [
        ("cairn/stall_ms", step.stall_seconds.map(|s| s * 1e3)),
        ("cairn/durable_s", step.durable_seconds),
        ("cairn/committed_s", step.committed_seconds),
        (
            "cairn/write_gbps",
            step.write_bytes_per_second.map(|b| b / 1e9),
        ),
    ];
    let known = all
        .into_iter()
        .filter_map(|(tag, value)| Some((tag, value?)));
    known.collect()
}
