//! A run in a process that was forked.

use super::Run;
use crate::errors::raise;
use pyo3::prelude::*;

impl Run {
    /// The threads of a run do not survive a fork, so a child may not save through its parent's.
    pub(super) fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let message = "this Checkpointer belongs to the process that made it, and this is a fork of that process";
        let hint = "make a new Checkpointer in the child";
        Err(raise("StateError", message, Some(hint.into()), None))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if self.process != std::process::id() {
            // In a forked child there is no thread to wait for, and waiting would never end.
            std::mem::forget(inner);
            return;
        }
        // Dropping waits for the save in the background, which must not keep other threads of Python waiting.
        let mut inner = Some(inner);
        Python::try_attach(|py| py.detach(|| drop(inner.take())));
    }
}
