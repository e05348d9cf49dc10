//! One snapshot in the table.

use super::ClientId;
use cairn_checkpoint::keeper::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

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
    /// Its writer is gone, and it could not be committed.
    Stuck(String),
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

    /// Whether nobody works on it any more.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Committed | Stage::Stuck(_))
    }

    /// Whether nobody would miss it at once.
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
            Self::Stuck(reason) => Some(reason),
            _ => None,
        }
    }
}
