//! What was promised and to whom, kept outside of the world, to compare with what is found.

use crate::disk::ProcessId;
use crate::fault::Kind;
use crate::world::{DURABLE, Tier};
use cairn_checkpoint::keeper::Snapshot;
use cairn_checkpoint::{Level, is_data_file};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Every promise, every failure that was told, and everything that breaks a rule.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) promises: Vec<Promise>,
    pub(crate) failures: Vec<Told>,
    /// Steps that a rank was told are not on the durable tier, in words.
    pub(crate) not_uploaded: Vec<(u64, String)>,
    /// Attempts that somebody committed, by step, in the order in which they were.
    pub(crate) commits: Vec<(u64, String)>,
    /// The lines of these attempts.
    pub(crate) lines: BTreeMap<String, u64>,
    /// Those that are committed on the durable tier.
    pub(crate) durable: BTreeSet<String>,
    /// Attempts that a pruning was to remove, by step.
    pub(crate) removed: BTreeSet<(u64, String)>,
    /// Attempts that a pruning took for abandoned, by folder: nobody had completed them for as long as its rule says.
    pub(crate) abandoned: BTreeSet<String>,
    /// Steps that somebody tagged, and was told so.
    pub(crate) tagged: BTreeSet<u64>,
    /// Steps that somebody rewrote as they were.
    pub(crate) rewritten: BTreeSet<u64>,
    /// Whether steps refer to files of others.
    pub(crate) is_shared: bool,
    /// Objects that rotted, and the tier they did on.
    pub(crate) rotted: BTreeSet<(Tier, String)>,
    /// Attempts of which ranks were told that their own files are on the fast tier of their node: the steps, and these ranks.
    pub(crate) parts: BTreeMap<(u64, String), BTreeSet<usize>>,
    /// Captures that keepers took, by the process of the keeper and the number of the snapshot.
    pub(crate) captures: BTreeMap<(ProcessId, u64), Capture>,
    /// Faults that happened.
    pub(crate) happened: Vec<Kind>,
    /// How often each rule was checked.
    pub(crate) checks: BTreeMap<Rule, u64>,
    /// What must not be.
    pub(crate) violations: Vec<String>,
}

/// What must hold in every world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// What a rank was told is safe is there.
    Promise,
    /// A committed step is whole and loads.
    Whole,
    /// The newest step loads, and is no older than what was promised.
    Newest,
    /// What loads is what was saved.
    Bytes,
    /// A rank that fails tells the others.
    Told,
    /// Where nothing goes wrong, nothing fails.
    Reason,
    /// Nothing is left that no step needs.
    Tidy,
    /// What a keeper took is committed, or it is known why not.
    Kept,
    /// Everybody comes to an end.
    Ends,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Promise => "what was promised is there",
            Self::Whole => "committed steps are whole",
            Self::Newest => "the newest step loads",
            Self::Bytes => "what loads is what was saved",
            Self::Told => "failures are told",
            Self::Reason => "nothing fails for nothing",
            Self::Tidy => "nothing is left over",
            Self::Kept => "captures outlive their writers",
            Self::Ends => "everybody comes to an end",
        })
    }
}

/// Where a step is in the history of a run: its line, and its number.
pub(crate) type Place = (u64, u64);

/// A rank was told that its step is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) who: String,
    pub(crate) step: u64,
    pub(crate) attempt: String,
    /// Where it is safe.
    pub(crate) level: Level,
}

/// A rank was told that its step is not safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) process: ProcessId,
    pub(crate) launch: usize,
    pub(crate) rank: usize,
    pub(crate) step: u64,
    pub(crate) at: Duration,
    pub(crate) reason: String,
    /// Another launch has the step, which everybody sees alone.
    pub(crate) is_taken: bool,
    /// Whom it waited for in vain.
    pub(crate) missing: Vec<usize>,
}

/// A keeper was told that a capture is complete, and took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capture {
    pub(crate) about: Snapshot,
    pub(crate) end: CaptureEnd,
    /// When it came to that.
    pub(crate) at: Duration,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CaptureEnd {
    /// Nothing yet.
    Open,
    /// Its writer committed it.
    Committed,
    /// Its writer did not want it any more.
    Abandoned,
    /// The keeper committed it, or wrote it where nobody can commit.
    Ended,
    /// The keeper could not.
    Stuck {
        /// Why not.
        reason: String,
        /// Whether a writer had said that it gave up.
        is_given_up: bool,
    },
}

impl Ledger {
    /// Whether an object of the step rotted on the durable tier, or one that it may refer to.
    pub(crate) fn is_rotted(&self, step: u64) -> bool {
        self.is_rotted_on(step, |tier| tier == DURABLE)
    }

    /// Whether an object of the step rotted on some tier, or one that it may refer to.
    pub(crate) fn is_rotted_anywhere(&self, step: u64) -> bool {
        self.is_rotted_on(step, |_| true)
    }

    /// Whether an object of the step rotted on a tier that `counts`, or one that it may refer to.
    pub(crate) fn is_rotted_on(&self, step: u64, counts: impl Fn(Tier) -> bool) -> bool {
        let folder = format!("{}/", cairn_checkpoint::step_folder(step));
        let mut rotted = self.rotted.iter().filter(|(tier, _)| counts(*tier));
        rotted.any(|(_, path)| path.starts_with(&folder) || (self.is_shared && is_data_file(path)))
    }

    /// A fast tier is gone, or cannot be uploaded, and what was promised to be there is void.
    pub(crate) fn lose_fast(&mut self) {
        self.tagged.clear();
        self.promises
            .retain(|promise| promise.level == Level::Durable);
        self.parts.clear();
    }

    /// Whether a promise does not hold any more: what it is about rotted or was removed, or another attempt took its place and was.
    pub(crate) fn is_void(&self, promise: &Promise) -> bool {
        let (step, attempt) = (promise.step, &promise.attempt);
        let last = |attempt: &String| {
            let mut commits = self.commits.iter();
            commits.rposition(|commit| commit.0 == step && commit.1 == *attempt)
        };
        let mut removed = self.removed.iter().filter(|removed| removed.0 == step);
        let is_rotted = match promise.level {
            Level::Durable => self.is_rotted(step),
            _ => self.is_rotted_anywhere(step),
        };
        is_rotted || removed.any(|(_, gone)| gone == attempt || last(gone) > last(attempt))
    }

    /// Whether a pruning was to remove an attempt of the step.
    pub(crate) fn is_removed(&self, step: u64) -> bool {
        self.removed.iter().any(|removed| removed.0 == step)
    }

    /// The newest step that somebody was promised, and that has not rotted or been removed since.
    pub(crate) fn newest_promise(&self) -> Option<Place> {
        self.newest_promise_until((u64::MAX, u64::MAX))
    }

    /// The newest step up to `most` that somebody was promised, and that has not rotted or been removed since.
    pub(crate) fn newest_promise_until(&self, most: Place) -> Option<Place> {
        let standing = { self.promises.iter() }.filter(|promise| !self.is_void(promise));
        let places = standing.map(|promise| self.standing_place(promise));
        places.filter(|place| *place <= most).max()
    }

    /// Where what was promised is, by the attempt that stands: another launch may have replaced the one that was.
    fn standing_place(&self, promise: &Promise) -> Place {
        let mut commits = self.commits.iter().rev();
        let is_there = |attempt| promise.level == Level::Local || self.durable.contains(attempt);
        let last = commits.find(|(step, attempt)| *step == promise.step && is_there(attempt));
        let attempt = last.map_or(&promise.attempt, |(_, attempt)| attempt);
        self.place(promise.step, attempt)
    }

    fn place(&self, step: u64, attempt: &str) -> Place {
        (self.lines.get(attempt).copied().unwrap_or(0), step)
    }

    /// Writes down that an attempt is committed.
    pub(crate) fn commit(&mut self, (line, step): Place, attempt: &str, tier: Tier) {
        if tier == DURABLE {
            self.durable.insert(attempt.to_string());
        }
        self.lines.insert(attempt.to_string(), line);
        self.commits.push((step, attempt.to_string()));
    }

    /// Writes down that steps are about to be removed, which must leave one that is as new as what was promised.
    pub(crate) fn remove(
        &mut self,
        steps: &BTreeMap<u64, String>,
        is_committed: impl Fn(u64) -> bool,
    ) {
        let newer = |promised: Place| {
            let mut commits = self.commits.iter();
            commits
                .any(|(step, attempt)| self.place(*step, attempt) > promised && is_committed(*step))
        };
        // What another launch has replaced is not what is removed.
        let goes = |(line, step): &Place| {
            let removed = steps.get(step);
            removed.is_some_and(|attempt| self.place(*step, attempt) == (*line, *step))
        };
        if let Some((line, promised)) = self.newest_promise().filter(goes)
            && !newer((line, promised))
        {
            self.violate(format!(
                "step {promised} is pruned, and there is none after it"
            ));
        }
        let removed = steps.iter();
        self.removed
            .extend(removed.map(|(step, attempt)| (*step, attempt.clone())));
    }

    /// Writes down that a rule is checked, now.
    pub(crate) fn check(&mut self, rule: Rule) {
        *self.checks.entry(rule).or_default() += 1;
    }

    pub(crate) fn violate(&mut self, text: String) {
        if !self.violations.contains(&text) {
            self.violations.push(text);
        }
    }
}
