//! The handle of a save in the background.

use crate::errors::exception;
use crate::report;
use pyo3::prelude::*;
use pyo3::types::PyDict;
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

    /// Whether the save has ended, well or not.
    fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// The bytes of this rank that are written, and all there are.
    fn progress(&self) -> (u64, u64) {
        self.0.progress()
    }

    /// Waits until the step is committed; None if `timeout` seconds pass first. Ctrl-C is heard while waiting.
    #[pyo3(signature = (timeout = None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let deadline = timeout
            .and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok())
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let mut pause = PAUSES.0;
        while !self.0.is_done() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            py.detach(|| std::thread::sleep(pause));
            py.check_signals()?;
            pause = (pause * 2).min(PAUSES.1);
        }
        match self.0.wait() {
            Ok(done) => report::saved(py, &done).map(Some),
            Err(error) => Err(exception(&error)),
        }
    }
}
