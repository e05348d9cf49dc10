//! Which rank this process is, as whoever launched it says.

use crate::errors::OrRaise;
use cairn::checkpoint::Launch;
use pyo3::prelude::*;

type LaunchTuple = (
    usize,
    usize,
    Option<String>,
    Option<usize>,
    Option<usize>,
    &'static str,
);

/// Rank, size, session, local rank, local size and launcher, as the environment says.
#[pyfunction]
pub(crate) fn launch() -> PyResult<LaunchTuple> {
    let launch = Launch::from_env().or_raise()?;
    Ok((
        launch.rank,
        launch.size,
        launch.session,
        launch.local_rank,
        launch.local_size,
        launch.launcher,
    ))
}
