//! The handle of a save that goes on in the background.

use crate::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a finished save did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveReport {
    /// The step.
    pub step: u64,
    /// The attempt that holds it.
    pub attempt: String,
    /// The bytes this rank wrote.
    pub len_bytes: u64,
    /// The time to plan, next to none if the state had the same outline as the one before.
    pub planning: Duration,
    /// From the call of `save` until this rank's bytes were durable.
    pub durable: Duration,
    /// From the call of `save` until the step was committed.
    pub committed: Duration,
}

/// How far a save is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) total: AtomicU64,
    pub(crate) written: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Outcome {
    result: Mutex<Option<Result<SaveReport, Arc<Error>>>>,
    done: Condvar,
    seen: AtomicBool,
}

/// A save in the background. Dropping the handle does not stop it; its outcome is then reported by the next `save`.
#[derive(Debug, Clone)]
pub struct Saving {
    step: u64,
    planning: Duration,
    stall: Duration,
    progress: Arc<Progress>,
    outcome: Arc<Outcome>,
}

impl Saving {
    pub(crate) fn new(step: u64, planning: Duration, progress: Arc<Progress>) -> Self {
        Self {
            step,
            planning,
            stall: Duration::ZERO,
            progress,
            outcome: Arc::default(),
        }
    }

    pub(crate) fn with_stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// Waits until the step is committed: every writer's bytes are durable and readers see them.
    ///
    /// # Errors
    /// Whatever stopped this writer, or another one, or the commit. Nothing is committed then.
    pub fn wait(&self) -> Result<SaveReport, Arc<Error>> {
        self.outcome.seen.store(true, Ordering::Relaxed);
        self.peek()
    }

    /// Whether the save has ended, well or not.
    pub fn is_done(&self) -> bool {
        self.lock().is_some()
    }

    /// The step being saved.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// How long `save` planned: next to nothing if the state had the same outline as the one before.
    pub fn planning(&self) -> Duration {
        self.planning
    }

    /// How long `save` held its caller.
    pub fn stall(&self) -> Duration {
        self.stall
    }

    /// The bytes of this rank that have been written, and all there are.
    pub fn progress(&self) -> (u64, u64) {
        let written = self.progress.written.load(Ordering::Relaxed);
        (written, self.progress.total.load(Ordering::Relaxed))
    }

    /// Waits for the end without counting as a look at it.
    pub(crate) fn peek(&self) -> Result<SaveReport, Arc<Error>> {
        let mut result = self.lock();
        loop {
            if let Some(result) = result.as_ref() {
                return result.clone();
            }
            let waited = self.outcome.done.wait(result);
            result = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The failure nobody has looked at yet, if there is one.
    pub(crate) fn unseen_failure(&self) -> Option<Arc<Error>> {
        let failure = self.peek().err()?;
        let seen = self.outcome.seen.swap(true, Ordering::Relaxed);
        (!seen).then_some(failure)
    }

    pub(crate) fn finish(&self, result: Result<SaveReport, Error>) {
        if let Err(error) = &result {
            tracing::error!(step = self.step, error = %crate::commit::chain(error), "checkpoint not saved");
        }
        *self.lock() = Some(result.map_err(Arc::new));
        self.outcome.done.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<SaveReport, Arc<Error>>>> {
        let result = self.outcome.result.lock();
        result.unwrap_or_else(PoisonError::into_inner)
    }
}
