//! One timed phase, as the measuring programs print it.

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::workspace::output;

/// Which limit of the disk a phase runs into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    Write,
    Read,
}

/// How long one system took for one phase, each time it was repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) system: String,
    pub(crate) phase: String,
    pub(crate) direction: Option<Direction>,
    pub(crate) bytes: u64,
    pub(crate) seconds: Vec<f64>,
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
            if measurement.seconds.is_empty() {
                return Err(format!("`{line}` was never measured").into());
            }
            Ok(measurement)
        };
        lines.lines().map(parse).collect()
    }

    /// The median repetition: what a user can expect.
    pub(crate) fn median_seconds(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    }

    /// The rate of the median repetition.
    pub(crate) fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e9 / self.median_seconds()
    }

    /// The rate of the fastest repetition: what the machine has shown it can do.
    pub(crate) fn best_gigabytes_per_second(&self) -> f64 {
        let fastest = self.seconds.iter().copied().fold(f64::INFINITY, f64::min);
        self.bytes as f64 / 1e9 / fastest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"system":"disk","phase":"write","direction":"write","bytes":4000000000,"seconds":[1.0,9.0,2.0]}"#;

    #[test]
    fn rates_are_those_of_the_median_and_the_fastest_repetition() {
        let measurements = Measurement::parse(LINE).unwrap();
        assert_eq!(measurements[0].gigabytes_per_second(), 2.0);
        assert_eq!(measurements[0].best_gigabytes_per_second(), 4.0);
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
