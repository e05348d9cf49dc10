//! One snapshot in the table.

use super::ClientId;
use cairn_checkpoint::keeper::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long after a failure an orphan is tried again; twice as long after each further one, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How far a snapshot is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its writer captures into it.
    Filling,
    /// Every byte is there; its writer writes it.
    Captured,
    /// Its writer is gone, and its checksums are being computed.
    Sealing,
    /// Its writer is gone, and it is being written and committed.
    Persisting,
    /// Its writer made it durable.
    Written,
    /// Its step is committed.
    Committed,
    /// Its writer is gone, and it could not be committed yet.
    Stuck(Failure),
}

/// Why an orphan is not committed, and whether it ever can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    pub(crate) prospect: Prospect,
}

/// What becomes of a snapshot that could not be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prospect {
    /// A store may come back, a disk may have room again, a writer may still come.
    Open,
    /// A writer of its step gave the attempt up, and told the others.
    GivenUp,
    /// Another attempt at its step is committed.
    Taken,
}

/// When an orphan that could not be committed is tried again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Retry {
    /// By the clock of the table.
    pub(crate) at: Duration,
    /// How often it was tried and did not succeed.
    pub(crate) failures: u32,
    /// Whether somebody tries it now.
    pub(crate) is_running: bool,
}

/// One snapshot.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) about: Snapshot,
    pub(crate) image: Option<u64>,
    pub(crate) stage: Stage,
    /// Its writer; `None` when that one is gone.
    pub(crate) client: Option<ClientId>,
    pub(crate) draft: Arc<[u8]>,
    pub(crate) part: Option<Arc<[u8]>>,
    pub(crate) readers: BTreeSet<ClientId>,
    /// Its writer lives and ends its save itself, but does not say so any more.
    pub(crate) is_cut: bool,
    pub(crate) retry: Retry,
    /// When it came to its stage, by the clock of the table.
    pub(crate) since: Duration,
}

impl Entry {
    pub(crate) fn new(
        about: Snapshot,
        image: Option<u64>,
        client: ClientId,
        now: Duration,
    ) -> Self {
        Self {
            about,
            image,
            stage: Stage::Filling,
            client: Some(client),
            draft: Arc::default(),
            part: None,
            readers: BTreeSet::new(),
            is_cut: false,
            retry: Retry::default(),
            since: now,
        }
    }

    pub(crate) fn enter(&mut self, stage: Stage, now: Duration) {
        self.stage = stage;
        self.since = now;
    }

    /// Whether it is all there, and not known to be safe.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.stage, Stage::Captured | Stage::Written)
    }

    /// Somebody tried to commit it in vain: it will be tried again, each time a little later.
    pub(crate) fn fail(&mut self, failure: Failure, now: Duration) {
        let doubled = 1_u32.checked_shl(self.retry.failures).unwrap_or(u32::MAX);
        self.retry = Retry {
            at: now + FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE),
            failures: self.retry.failures.saturating_add(1),
            is_running: false,
        };
        match &mut self.stage {
            // It has been so since the first time.
            Stage::Stuck(old) => *old = failure,
            _ => self.enter(Stage::Stuck(failure), now),
        }
    }

    /// Whether it is to be tried again at `now`.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let is_open =
            matches!(&self.stage, Stage::Stuck(failure) if failure.prospect != Prospect::Taken);
        is_open && self.client.is_none() && !self.retry.is_running && self.retry.at <= now
    }

    /// Whether nobody works on it any more.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Committed | Stage::Stuck(_)) && !self.retry.is_running
    }

    /// Whether its writer is gone and nobody reads it.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_settled() && self.client.is_none() && self.readers.is_empty()
    }

    /// Whether it belongs to the attempt that `about` does.
    pub(crate) fn is_of(&self, about: &Snapshot) -> bool {
        self.about.run == about.run && self.about.attempt == about.attempt
    }

    /// The memory of what its writer left with it.
    pub(crate) fn document_bytes(&self) -> u64 {
        let part = self.part.as_ref().map_or(0, |part| part.len());
        (self.draft.len() + part) as u64
    }
}

impl Stage {
    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Filling => "filling",
            Self::Captured => "captured",
            Self::Sealing => "sealing",
            Self::Persisting => "persisting",
            Self::Written => "written",
            Self::Committed => "committed",
            Self::Stuck(_) => "stuck",
        }
    }

    /// Why it is stuck.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Stuck(failure) => Some(&failure.reason),
            _ => None,
        }
    }
}
