//! The timelines that lie beside a committed step.

use super::{Timeline, headline};
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::error::StoreContext;
use crate::error::chain;
use crate::names::AttemptKeys;
use cairn_store::{PutMode, Store};
use std::time::Duration;

/// The timelines of one step.
#[derive(Debug, Default)]
pub struct StepTimelines {
    /// Those that could be read, by rank.
    pub ranks: Vec<Timeline>,
    /// The ranks that left none.
    pub missing: Vec<usize>,
    /// Why others could not be read.
    pub unreadable: Vec<Error>,
}

impl StepTimelines {
    /// The longest stall: training goes on when the last rank does.
    pub fn stall(&self) -> Duration {
        self.longest(Timeline::stall)
    }

    /// When the last rank had done its part.
    pub fn durable(&self) -> Duration {
        self.longest(Timeline::durable)
    }

    /// When the last rank knew of the commit.
    pub fn total(&self) -> Duration {
        self.longest(|timeline| timeline.total)
    }

    /// The rank the others waited for: the last to have done its part.
    pub fn slowest(&self) -> Option<&Timeline> {
        // Of equal ones the first.
        self.ranks.iter().rev().max_by_key(|rank| rank.durable())
    }

    /// `training stall 4 ms of 6.1 s`, of the ranks that took longest.
    pub fn headline(&self) -> String {
        headline(self.stall(), self.total())
    }

    fn longest(&self, of: impl Fn(&Timeline) -> Duration) -> Duration {
        self.ranks.iter().map(of).max().unwrap_or_default()
    }
}

impl Checkpoint {
    /// Reads where the time of this save went, of every rank that left word of it.
    ///
    /// # Errors
    /// If the store fails. A timeline that is damaged or too new is in the result.
    pub fn timelines(&self) -> Result<StepTimelines, Error> {
        let mut found = StepTimelines::default();
        for rank in 0..self.manifest().writers() {
            let key = self.keys().timeline(rank);
            let bytes = match self.store().get(&key) {
                Err(cairn_store::Error::NotFound { .. }) => {
                    found.missing.push(rank);
                    continue;
                }
                result => result.doing(|| format!("read `{key}`"))?,
            };
            match Timeline::from_json(&key, &bytes) {
                Ok(timeline) => found.ranks.push(timeline),
                Err(error) => found.unreadable.push(error),
            }
        }
        Ok(found)
    }
}

impl Timeline {
    /// Keeps the timeline beside its committed step. Nobody depends on it, so a failure is only logged.
    pub fn put(&self, store: &dyn Store) {
        let key = AttemptKeys::new(self.step, &self.attempt).timeline(self.rank);
        let put = store
            .put(&key, self.to_json().as_bytes(), PutMode::Replace)
            .doing(|| format!("write `{key}`"));
        if let Err(error) = put {
            tracing::warn!(step = self.step, rank = self.rank, error = %chain(&error), "the timeline of a save is lost");
        }
    }
}
