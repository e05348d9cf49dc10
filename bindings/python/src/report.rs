//! What the core reports, as dictionaries.

use crate::errors::chain;
use cairn::checkpoint::{KeyProblems, LoadCost, LoadReport, SaveReport, VerifyReport};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What a finished save did.
pub(crate) fn saved<'py>(py: Python<'py>, report: &SaveReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("step", report.step)?;
    dict.set_item("attempt", &report.attempt)?;
    dict.set_item("len_bytes", report.len_bytes)?;
    dict.set_item("planning_seconds", report.planning.as_secs_f64())?;
    dict.set_item("durable_seconds", report.durable.as_secs_f64())?;
    dict.set_item("committed_seconds", report.committed.as_secs_f64())?;
    dict.set_item(
        "uploaded_seconds",
        report.uploaded.map(|uploaded| uploaded.as_secs_f64()),
    )?;
    dict.set_item("unchanged", &report.unchanged)?;
    dict.set_item("capture", &report.timeline.capture)?;
    dict.set_item("notes", &report.timeline.notes)?;
    dict.set_item("headline", report.timeline.headline())?;
    dict.set_item("timeline", report.timeline.to_json())?;
    Ok(dict)
}

/// What a load will read or has read.
pub(crate) fn cost<'py>(
    py: Python<'py>,
    cost: &LoadCost,
    problems: &KeyProblems,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("wanted_bytes", cost.wanted_bytes)?;
    dict.set_item("read_bytes", cost.read_bytes)?;
    dict.set_item("target_bytes", cost.target_bytes)?;
    dict.set_item("files", cost.files)?;
    dict.set_item("reads", cost.reads)?;
    dict.set_item("over_read", cost.over_read())?;
    let missing: Vec<&str> = problems.missing.iter().map(|m| m.name.as_str()).collect();
    dict.set_item("missing", missing)?;
    dict.set_item("unexpected", &problems.unexpected)?;
    let mismatched: Vec<&str> = problems
        .mismatched
        .iter()
        .map(|m| m.name.as_str())
        .collect();
    dict.set_item("mismatched", mismatched)?;
    Ok(dict)
}

/// What a finished load did.
pub(crate) fn loaded<'py>(py: Python<'py>, report: &LoadReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = cost(py, &report.cost, &report.problems)?;
    dict.set_item("kept", &report.problems.kept)?;
    dict.set_item("received_bytes", report.received_bytes)?;
    dict.set_item("mended", &report.mended)?;
    dict.set_item("planning_seconds", report.planning.as_secs_f64())?;
    dict.set_item("reading_seconds", report.reading.as_secs_f64())?;
    Ok(dict)
}

/// What a check found.
pub(crate) fn verified<'py>(
    py: Python<'py>,
    report: &VerifyReport,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("files", report.files)?;
    dict.set_item("len_bytes", report.len_bytes)?;
    dict.set_item("checked_bytes", report.checked_bytes)?;
    let damage: Vec<String> = report.damage.iter().map(|error| chain(error)).collect();
    dict.set_item("damage", damage)?;
    Ok(dict)
}
