//! One measured phase, as the measuring programs print it.

use std::process::Command;

use serde::{Deserialize, Serialize};

use super::table::Target;
use crate::Result;
use crate::workspace::output;

/// Which limit of the machine a phase runs into: what its disk writes or reads, or how fast memory is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    Write,
    Read,
    Memory,
}

/// What one system did in one phase: the seconds of each repetition, or a single value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) system: String,
    pub(crate) phase: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) direction: Option<Direction>,
    #[serde(default)]
    pub(crate) bytes: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) seconds: Vec<f64>,
    /// What the raw disk, or a plain copy, took for the same bytes in the same rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ceiling_seconds: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Target>,
}

impl Measurement {
    /// Runs a program that prints one measurement per line.
    pub(crate) fn collect(command: Command) -> Result<Vec<Self>> {
        Self::parse(&output(command)?)
    }

    fn parse(lines: &str) -> Result<Vec<Self>> {
        let parse = |line| {
            let measurement: Self = serde_json::from_str(line)
                .map_err(|error| format!("not a measurement: `{line}`: {error}"))?;
            if measurement.seconds.is_empty() == measurement.value.is_none() {
                return Err(format!("`{line}` was never measured, or twice").into());
            }
            Ok(measurement)
        };
        lines.lines().map(parse).collect()
    }

    /// The number and its unit: a value as it is, a transfer as a rate, anything else in seconds.
    pub(crate) fn result(&self) -> (f64, String) {
        if let Some(value) = self.value {
            return (value, self.unit.clone().unwrap_or_default());
        }
        match self.direction {
            Some(_) => (self.rate(), "GB/s".into()),
            None => (median(&self.seconds), "s".into()),
        }
    }

    /// Gigabytes per second of the median repetition.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / 1e9 / median(&self.seconds)
    }

    /// Gigabytes per second of that limit in the median round.
    pub(crate) fn ceiling(&self) -> Option<f64> {
        (!self.ceiling_seconds.is_empty())
            .then(|| self.bytes as f64 / 1e9 / median(&self.ceiling_seconds))
    }

    /// How much of the limit was reached: the median of the rounds, each compared with its own.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let rounds = self.ceiling_seconds.iter().zip(&self.seconds);
        let ratios: Vec<f64> = rounds.map(|(disk, ours)| disk / ours).collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }
}

/// The middle one of some numbers.
fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"system":"disk","phase":"write","direction":"write","bytes":4000000000,"seconds":[1.0,9.0,2.0]}"#;

    #[test]
    fn the_rate_is_that_of_the_median_repetition() {
        let measurements = Measurement::parse(LINE).unwrap();
        assert_eq!(measurements[0].result(), (2.0, "GB/s".to_string()));
        assert_eq!(measurements[0].ratio(), None);
    }

    #[test]
    fn rounds_are_compared_with_the_disk_of_the_same_round() {
        let line = LINE.replace(
            r#""seconds""#,
            r#""ceiling_seconds":[0.9,9.9,1.0],"seconds""#,
        );
        let measurements = Measurement::parse(&line).unwrap();
        assert_eq!(measurements[0].ratio(), Some(0.9));
    }

    #[test]
    fn a_value_needs_no_repetitions() {
        let line = r#"{"system":"cairn","phase":"plan","unit":"ms","value":1.5,"target":{"at_most":20.0}}"#;
        let measurements = Measurement::parse(line).unwrap();
        assert_eq!(measurements[0].result(), (1.5, "ms".to_string()));
        assert_eq!(measurements[0].target, Some(Target::AtMost(20.0)));
    }

    #[test]
    fn noise_between_the_lines_is_an_error_that_shows_it() {
        let error = Measurement::parse(&format!("{LINE}\nwarming up")).unwrap_err();
        assert!(error.to_string().contains("`warming up`"), "{error}");
    }

    #[test]
    fn a_phase_without_repetitions_is_refused() {
        assert!(Measurement::parse(&LINE.replace("1.0,9.0,2.0", "")).is_err());
    }
}
