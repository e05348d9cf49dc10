//! Carries committed steps from the fast tier to the durable one, behind the saves.
//!
//! ```text
//! fast      data ▸ part ▸ COMMIT ┐                          ┌▸ DURABLE    from now on it may leave the fast tier
//! durable                        └▸ data ▸ part ▸ COMMIT ───┘             when the parts of all writers are there
//! ```
//!
//! The durable tier gets a step as if its writers had saved it there: data before its part, all parts before `COMMIT`. So a crash at any moment
//! leaves the durable tier with the whole step or without it, and whoever opens the fast tier next goes on.

mod carry;
mod marks;
mod pending;
mod uploader;

pub(crate) use marks::{is_marked, is_tier};
pub(crate) use uploader::Uploader;

use crate::Error;
use crate::commit::{Attempt, Patience};
use crate::delta::Bases;
use crate::error::chain;
use crate::outcome::Outcome;
use crate::pace::Pace;
use cairn_store::Tiered;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// An attempt on its way to the durable tier, as far as one rank carries it.
#[derive(Debug)]
pub(crate) struct Upload {
    attempt: Attempt,
    /// The writers whose files this rank carries.
    writers: Vec<usize>,
    /// What is known of the attempt.
    origin: Origin,
    started: Instant,
    outcome: Outcome<Duration>,
    /// Whether somebody looked at a failure.
    seen: AtomicBool,
    /// When other ranks' files were first found missing, by the clock of the run.
    missing_since: OnceLock<Duration>,
}

/// Where an upload comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// This launch saved it: all its ranks carry their files now, so it makes sense to wait for them.
    Saved,
    /// An earlier launch left it. Its other files may never come.
    Left {
        /// The line it is on, if this rank can tell: the part of writer 0 says so.
        line: Option<u64>,
        /// When it was created: RFC 3339, UTC.
        created: String,
    },
}

/// From where to where, and how.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) tiers: Tiered,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// How long the other ranks' files are waited for.
    pub(crate) patience: Patience,
    /// How long they may be missing before training is told.
    pub(crate) upload_timeout: Duration,
    pub(crate) pace: Option<Arc<Pace>>,
    /// What the next saves refer to.
    pub(crate) bases: Arc<Bases>,
    /// How many durable steps stay on the fast tier; all, if not given.
    pub(crate) keep: Option<usize>,
}

impl Upload {
    /// What `rank` just saved.
    pub(crate) fn saved(attempt: Attempt, rank: usize, started: Instant) -> Self {
        Self::new(attempt, vec![rank], Origin::Saved, started)
    }

    fn new(attempt: Attempt, writers: Vec<usize>, origin: Origin, started: Instant) -> Self {
        Self {
            attempt,
            writers,
            origin,
            started,
            outcome: Outcome::default(),
            seen: AtomicBool::new(false),
            missing_since: OnceLock::new(),
        }
    }

    pub(crate) fn step(&self) -> u64 {
        self.attempt.step
    }

    /// Waits until the step is durable, and says how long that took from the call of `save`; or until a try to make it so has failed.
    pub(crate) fn wait(&self) -> Result<Duration, Arc<Error>> {
        self.seen.store(true, Ordering::Relaxed);
        self.outcome.wait()
    }

    /// As [`Upload::wait`], but does not count as a look.
    pub(crate) fn join(&self) {
        let _ = self.outcome.wait();
    }

    /// How long it took, if it is over; the failure of the last try otherwise.
    pub(crate) fn result(&self) -> Option<Result<Duration, Arc<Error>>> {
        self.outcome.get()
    }

    /// The failure nobody has looked at yet, if there is one. Files that are missing may still come: a rank may be slower than this one.
    fn unseen_failure(&self, route: &Route) -> Option<Arc<Error>> {
        let failure = self.outcome.get()?.err()?;
        if matches!(*failure, Error::WritersMissing { .. }) {
            let missing = route.patience.clock.elapsed() - *self.missing_since.get()?;
            if missing.saturating_add(route.patience.timeout) < route.upload_timeout {
                return None;
            }
        }
        let seen = self.seen.swap(true, Ordering::Relaxed);
        (!seen).then_some(failure)
    }

    /// Says that it cannot be tried before another one has succeeded, which was told.
    fn wait_behind(&self, step: u64, source: Arc<Error>) {
        self.seen.store(true, Ordering::Relaxed);
        self.outcome.set(Err(Error::NotUploaded { step, source }));
    }

    /// Whether the last try found other ranks' files missing.
    fn is_missing_others(&self) -> bool {
        let failure = self.outcome.get().and_then(Result::err);
        failure.is_some_and(|failure| matches!(*failure, Error::WritersMissing { .. }))
    }

    /// Says how a try went, at this time by the clock of the run.
    fn tell(&self, tried: Result<bool, Error>, now: Duration) {
        if let Err(Error::WritersMissing { .. }) = tried {
            let _ = self.missing_since.set(now);
        }
        let (step, elapsed) = (self.step(), self.started.elapsed());
        let failed_before = matches!(self.outcome.get(), Some(Err(_)));
        match &tried {
            Ok(true) => {
                tracing::info!(step, elapsed_ms = %elapsed.as_millis(), "checkpoint is on the durable tier");
            }
            Ok(false) => {
                tracing::info!(
                    step,
                    "files of an earlier launch uploaded; others are missing"
                );
            }
            Err(error) if failed_before => {
                tracing::warn!(step, error = %chain(error), "checkpoint still not uploaded");
            }
            Err(error) => {
                tracing::error!(step, error = %chain(error), "checkpoint not uploaded; it stays on the fast tier");
            }
        }
        self.outcome.set(tried.map(|_| elapsed));
    }
}
