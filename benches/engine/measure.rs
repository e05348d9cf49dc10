//! A measurement, printed as one line of JSON.

use serde_json::{Value, json};
use std::time::Instant;

/// How often each phase is repeated: a multiple of three, so that each comes first equally often.
pub(crate) const ROUNDS: usize = 6;

/// Prints seconds that are set beside the seconds the raw disk (`write`, `read`) or a plain copy (`memory`) took for the same bytes in
/// the same round.
pub(crate) fn against(
    phase: &str,
    direction: &str,
    bytes: u64,
    seconds: &[f64],
    limit: &[f64],
    at_least: f64,
) {
    print_line(&json!({
        "system": "cairn", "phase": phase, "direction": direction, "bytes": bytes, "seconds": seconds,
        "ceiling_seconds": limit, "target": {"at_least": at_least},
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

/// The seconds of three kinds of work that are to be compared, [`ROUNDS`] times each.
///
/// A disk that may run ahead for a while and is then held back favours whoever comes first, so every round has another order,
/// and the first round is not counted.
pub(crate) fn compared(mut work: impl FnMut(usize) -> f64) -> [Vec<f64>; 3] {
    let mut seconds = [const { Vec::new() }; 3];
    for round in 0..=ROUNDS {
        for turn in 0..3 {
            let kind = (round + turn) % 3;
            let taken = work(kind);
            if round > 0 {
                seconds[kind].push(taken);
            }
        }
    }
    seconds
}

/// The median of how much longer each round took with something than without it, as a share.
pub(crate) fn extra(with: &[f64], without: &[f64]) -> f64 {
    let rounds = with.iter().zip(without);
    median(rounds.map(|(with, without)| with / without - 1.0).collect())
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
