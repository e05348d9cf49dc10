//! Arguments of calls, as Python passes them.

use crate::errors::raise;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// A time to wait; more than can be counted is for ever.
pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    if value >= 0.0 {
        return Ok(Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX));
    }
    let message = format!("{name}={value} is not a time to wait");
    let hint = "give seconds, 0 or more; `float('inf')` waits for ever";
    Err(raise("StateError", &message, Some(hint.into()), None))
}

/// Plain values, which come as JSON.
pub(crate) fn values_of(json: &str) -> PyResult<BTreeMap<String, serde_json::Value>> {
    serde_json::from_str(json).map_err(|error| {
        let message = format!("plain values could not be read: {error}");
        raise("StateError", &message, None, None)
    })
}
