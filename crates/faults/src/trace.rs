//! What happened, line by line, and one number for all of it.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The lines of a run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Vec<String>,
}

impl Trace {
    pub(crate) fn line(&mut self, now: Duration, who: &str, text: &str) {
        let seconds = now.as_secs_f64();
        self.lines.push(format!("{seconds:12.6} {who:<9} {text}"));
    }

    /// Equal runs have equal numbers.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.lines.hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}
