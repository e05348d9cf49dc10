//! What a rewrite has done so far, kept beside its target, so that it can be taken up again.
//!
//! ```text
//! TARGET/.cairn-convert/journal.json               of which rewrite, which files are whole, and what comes next
//! TARGET/.cairn-convert/model-00001-of-00002.…     data that is not published yet
//! ```

use super::OnUnfinished;
use crate::Error;
use crate::error::StoreContext;
use cairn_store::{PutMode, Store};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How the name of the folder begins in which an unfinished rewrite lies.
pub const UNFINISHED_FOLDER: &str = ".cairn-convert";

const VERSION: u32 = 2;

/// How far a rewrite is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    /// Data is being written; the target is as it was.
    Writing,
    /// Everything is there; what it replaces is being deleted.
    Whole,
    /// Nothing is in the way; files are being moved to their places.
    Clear,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entries {
    version: u32,
    identity: String,
    phase: Phase,
    /// The files that are whole.
    complete: BTreeSet<String>,
    /// The files that go when all are.
    replaces: Vec<String>,
    /// Where a new step gathers.
    attempt: Option<String>,
}

/// The journal of one rewrite.
pub(super) struct Journal<'a> {
    store: &'a dyn Store,
    folder: String,
    entries: Entries,
}

impl<'a> Journal<'a> {
    /// The journal in `folder` of the rewrite that is called `identity`: the one that is there if it is to be resumed.
    pub(super) fn open(
        store: &'a dyn Store,
        folder: String,
        identity: String,
        unfinished: OnUnfinished,
    ) -> Result<Self, Error> {
        let entries = Entries {
            version: VERSION,
            identity,
            phase: Phase::Writing,
            complete: BTreeSet::new(),
            replaces: Vec::new(),
            attempt: None,
        };
        let mut journal = Self {
            store,
            folder,
            entries,
        };
        let key = journal.key();
        let found = match store.get(&key) {
            Err(cairn_store::Error::NotFound { .. }) => None,
            result => Some(result.doing(|| format!("read `{key}`"))?),
        };
        match (found, unfinished) {
            (Some(_), OnUnfinished::Refuse) => {
                let (url, folder) = (store.url(), journal.folder);
                return Err(Error::Unfinished { url, folder });
            }
            (Some(bytes), OnUnfinished::Resume) => journal.take_up(&bytes)?,
            (_, OnUnfinished::Discard) | (None, _) => journal.discard()?,
        }
        Ok(journal)
    }

    fn take_up(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let cannot = |reason: &str| Error::CannotResume {
            url: self.store.url(),
            reason: reason.into(),
        };
        let found: Entries =
            serde_json::from_slice(bytes).map_err(|_| cannot("its journal cannot be read"))?;
        if found.version != VERSION {
            return Err(cannot("another version of Cairn began it"));
        }
        if found.identity != self.entries.identity {
            return Err(cannot("the source or the options have changed since"));
        }
        self.entries = found;
        Ok(())
    }

    /// Deletes what an earlier rewrite left, its journal last.
    fn discard(&self) -> Result<(), Error> {
        let folder = &self.folder;
        let doing = || format!("clear `{folder}`");
        self.store.sweep(folder).doing(doing)?;
        let mut left = self.store.list(folder).doing(doing)?;
        left.sort_by_key(|meta| meta.key == self.key());
        for meta in left {
            self.store.delete(&meta.key).doing(doing)?;
        }
        Ok(())
    }

    pub(super) fn phase(&self) -> Phase {
        self.entries.phase
    }

    pub(super) fn replaces(&self) -> &[String] {
        &self.entries.replaces
    }

    pub(super) fn attempt(&self) -> Option<&str> {
        self.entries.attempt.as_deref()
    }

    /// Whether the file called `name` is whole.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.complete.contains(name)
    }

    /// The key under which the file called `name` lies until it is published.
    pub(super) fn staged(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// Notes where a new step gathers.
    pub(super) fn begin_attempt(&mut self, attempt: &str) -> Result<(), Error> {
        self.entries.attempt = Some(attempt.to_string());
        self.put()
    }

    /// Notes that the file called `name` is whole.
    pub(super) fn add(&mut self, name: &str) -> Result<(), Error> {
        self.entries.complete.insert(name.to_string());
        self.put()
    }

    /// Notes that all files are whole, and go to the place of these.
    pub(super) fn set_whole(&mut self, replaces: Vec<String>) -> Result<(), Error> {
        self.entries.phase = Phase::Whole;
        self.entries.replaces = replaces;
        self.put()
    }

    /// Notes that nothing is in the way any more.
    pub(super) fn set_clear(&mut self) -> Result<(), Error> {
        self.entries.phase = Phase::Clear;
        self.put()
    }

    /// Ends the rewrite: there is nothing left to take up.
    pub(super) fn close(self) -> Result<(), Error> {
        self.discard()
    }

    /// Writes the journal; the first time this begins the rewrite.
    pub(super) fn put(&self) -> Result<(), Error> {
        let key = self.key();
        let text = serde_json::to_string_pretty(&self.entries).expect("a journal is JSON") + "\n";
        self.store
            .put(&key, text.as_bytes(), PutMode::Replace)
            .doing(|| format!("write `{key}`"))
    }

    fn key(&self) -> String {
        format!("{}/journal.json", self.folder)
    }
}
