//! A measurement, printed as one line of JSON.

use serde_json::{Value, json};
use std::time::Instant;

/// How often each phase is repeated.
pub(crate) const ROUNDS: usize = 5;

/// Prints seconds that are set beside the seconds the raw disk took for the same bytes in the same round.
pub(crate) fn against_disk(
    phase: &str,
    direction: &str,
    bytes: u64,
    seconds: &[f64],
    disk: &[f64],
    at_least: f64,
) {
    print_line(&json!({
        "system": "cairn", "phase": phase, "direction": direction, "bytes": bytes, "seconds": seconds,
        "ceiling_seconds": disk, "target": {"at_least": at_least},
    }));
}

/// Prints one number with its unit, and the most it may be.
pub(crate) fn value(phase: &str, unit: &str, value: f64, at_most: f64) {
    print_line(&json!({
        "system": "cairn", "phase": phase, "unit": unit, "value": value, "target": {"at_most": at_most},
    }));
}

#[expect(
    clippy::print_stdout,
    reason = "the lines are what this program is for"
)]
fn print_line(line: &Value) {
    println!("{line}");
}

/// How long `work` takes, and what it gives.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64(), result)
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
