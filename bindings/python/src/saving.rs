//! The handle of a save in the background.

use crate::errors::{OrRaise, exception, raise};
use crate::report;
use cairn::checkpoint::Level;
use cairn::device::Stream;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The first and the longest pause between two looks at a save.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(10));

/// A save in the background.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct Saving(pub(crate) cairn::checkpoint::Saving);

#[pymethods]
impl Saving {
    /// The step being saved.
    #[getter]
    fn step(&self) -> u64 {
        self.0.step()
    }

    /// The seconds `save` held its caller.
    #[getter]
    fn stall(&self) -> f64 {
        self.0.stall().as_secs_f64()
    }

    /// The seconds `save` planned: next to nothing if the state had the same outline as the one before.
    #[getter]
    fn planning(&self) -> f64 {
        self.0.planning().as_secs_f64()
    }

    /// Whether every byte of the state was copied.
    fn is_captured(&self) -> bool {
        self.0.is_captured()
    }

    /// Waits until the state may change, or what changes in one turn; the given streams of devices wait for their copies on the device.
    /// Returns the seconds it held its caller, and why.
    #[pyo3(signature = (streams, turn = None))]
    fn fence(
        &self,
        py: Python,
        streams: BTreeMap<usize, u64>,
        turn: Option<u32>,
    ) -> PyResult<(f64, Option<String>)> {
        let streams = named_streams(streams);
        let fenced = py.detach(|| match turn {
            Some(turn) => self.0.fence_turn(turn, &streams),
            None => self.0.fence(&streams),
        });
        let fenced = fenced.or_raise()?;
        Ok((fenced.waited.as_secs_f64(), fenced.reason))
    }

    /// Waits until the save has ended, well or not; a failure stays unseen.
    fn join(&self, py: Python) {
        py.detach(|| self.0.join());
    }

    /// Asks the save to stop.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether the step was passed over.
    fn is_skipped(&self) -> bool {
        self.0.is_skipped()
    }

    /// The tensors with the same bytes as in the save before, once the save has ended well.
    fn unchanged(&self) -> Vec<String> {
        self.0
            .outcome()
            .map(|report| report.unchanged)
            .unwrap_or_default()
    }

    /// Whether the save has ended, well or not.
    fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// The bytes of this rank that are written, and all there are.
    fn progress(&self) -> (u64, u64) {
        self.0.progress()
    }

    /// How safe what was saved is by now.
    fn level(&self) -> Option<&'static str> {
        let level = self.0.level()?;
        let named = LEVELS.iter().find(|(_, known)| *known == level);
        named.map(|(name, _)| *name)
    }

    /// Waits until the save is as safe as `until` says; False if `timeout` seconds pass first. Ctrl-C is heard while waiting.
    #[pyo3(signature = (timeout = None, until = "durable"))]
    fn wait(&self, py: Python, timeout: Option<f64>, until: &str) -> PyResult<bool> {
        let level = level(until)?;
        let deadline = timeout
            .and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok())
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let mut pause = PAUSES.0;
        while !self.0.has_settled(level) {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            py.detach(|| std::thread::sleep(pause));
            py.check_signals()?;
            pause = (pause * 2).min(PAUSES.1);
        }
        let waited = self.0.wait_for(level);
        waited.map(|()| true).map_err(|error| exception(&error))
    }

    /// What the save did, once it is local.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let report = self.0.outcome();
        report.map(|report| report::saved(py, &report)).transpose()
    }
}

/// How safe a save can be, by name.
const LEVELS: [(&str, Level); 3] = [
    ("staged", Level::Staged),
    ("local", Level::Local),
    ("durable", Level::Durable),
];

fn level(name: &str) -> PyResult<Level> {
    let known = LEVELS.iter().find(|(known, _)| *known == name);
    known.map(|(_, level)| *level).ok_or_else(|| {
        let message = format!("until={name:?} is not a choice");
        let hint = "use \"staged\", \"local\" or \"durable\"";
        raise("StateError", &message, Some(hint.into()), None)
    })
}

/// Streams with the names of their devices.
pub(crate) fn named_streams(streams: BTreeMap<usize, u64>) -> Vec<(String, Stream)> {
    let name = |(device, stream): (usize, u64)| (format!("cuda:{device}"), Stream(stream));
    streams.into_iter().map(name).collect()
}
