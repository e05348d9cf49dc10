//! How long a writer waits for the others.

use crate::clock::Clock;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a writer waits for the others, and by which clock.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    pub(crate) clock: Arc<dyn Clock>,
    /// Until it gives up.
    pub(crate) timeout: Duration,
    /// Until it commits in the place of writer 0.
    pub(crate) takeover: Duration,
    /// Whether a commit that fails is the end of the attempt, which is told to the others.
    pub(crate) is_final: bool,
    /// When nobody waits for anybody any more, whatever the time-out.
    pub(crate) cutoff: Cutoff,
}

/// A moment, by the clock of the run, after which nobody waits for others. There is none before it is set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cutoff(Arc<OnceLock<Duration>>);

impl Cutoff {
    /// Sets it; the first time counts.
    pub(crate) fn set(&self, at: Duration) {
        let _ = self.0.set(at);
    }

    /// Whether it has come.
    pub(crate) fn is_over(&self, clock: &dyn Clock) -> bool {
        self.0.get().is_some_and(|at| clock.elapsed() >= *at)
    }
}
