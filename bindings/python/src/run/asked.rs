//! What a run asks of Python, or makes of what Python says.

use crate::errors::raise;
use cairn::checkpoint::World;
use pyo3::prelude::*;

/// The names of tensors that were changed, as Python tells them. A watch that fails counts as a change.
pub(super) fn changed(watch: &Py<PyAny>) -> Vec<String> {
    let asked = Python::try_attach(|py| watch.call0(py)?.extract::<Vec<String>>(py));
    match asked {
        None => Vec::new(),
        Some(Ok(names)) => names,
        Some(Err(error)) => vec![format!("the check for changes failed: {error}")],
    }
}

/// Whether a condition of Python's holds: it returns what is wrong, or nothing. One that fails does not hold.
pub(super) fn holds(condition: &Py<PyAny>) -> Result<(), String> {
    let asked = Python::try_attach(|py| condition.call0(py)?.extract::<Option<String>>(py));
    match asked {
        // The interpreter has ended, and with it whoever would have waited for the save.
        None | Some(Ok(None)) => Ok(()),
        Some(Ok(Some(reason))) => Err(reason),
        Some(Err(error)) => Err(error.to_string()),
    }
}

/// A rank among `size`, which save together under the name of a session.
pub(super) fn world_of(
    rank: usize,
    size: usize,
    session: Option<String>,
    unique: bool,
) -> PyResult<World> {
    let world = match session {
        Some(session) if unique => World::new(rank, size, session).map(World::unique),
        Some(session) => World::new(rank, size, session),
        None if size == 1 => Some(World::single()),
        None => None,
    };
    world.ok_or_else(|| {
        let message = format!("rank {rank} of {size} without a session is not a world");
        let hint = "ranks count from 0, and ranks that save together need a common session name";
        raise("StateError", &message, Some(hint.into()), None)
    })
}
