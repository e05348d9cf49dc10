//! What was promised and to whom, kept outside of the world, to compare with what is found.

use crate::disk::ProcessId;
use crate::fault::Kind;
use cairn_checkpoint::is_data_file;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Every promise, every failure that was told, and everything that breaks a rule.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) promises: Vec<Promise>,
    pub(crate) failures: Vec<Told>,
    /// Steps that a pruning was to remove.
    pub(crate) removed: BTreeSet<u64>,
    /// Steps that somebody rewrote as they were.
    pub(crate) rewritten: BTreeSet<u64>,
    /// Whether steps refer to files of others.
    pub(crate) is_shared: bool,
    /// Objects that rotted.
    pub(crate) rotted: BTreeSet<String>,
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
            Self::Ends => "everybody comes to an end",
        })
    }
}

/// A rank was told that its step is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) who: String,
    pub(crate) step: u64,
    pub(crate) attempt: String,
    pub(crate) content: u64,
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

impl Ledger {
    /// Whether an object of the step rotted, or one that it may refer to.
    pub(crate) fn is_rotted(&self, step: u64) -> bool {
        let folder = format!("{}/", cairn_checkpoint::step_folder(step));
        let mut rotted = self.rotted.iter();
        rotted.any(|path| path.starts_with(&folder) || (self.is_shared && is_data_file(path)))
    }

    /// The newest step that somebody was promised, and that has not rotted or been removed since.
    pub(crate) fn newest_promise(&self) -> Option<u64> {
        self.newest_promise_until(u64::MAX)
    }

    /// The newest step up to `most` that somebody was promised, and that has not rotted or been removed since.
    pub(crate) fn newest_promise_until(&self, most: u64) -> Option<u64> {
        let steps = self.promises.iter().map(|promise| promise.step);
        steps
            .filter(|step| *step <= most)
            .filter(|step| !self.is_rotted(*step) && !self.removed.contains(step))
            .max()
    }

    /// Writes down that steps are about to be removed, which must leave one that is as new as what was promised.
    pub(crate) fn remove(&mut self, steps: &[u64], is_committed: impl Fn(u64) -> bool) {
        let newer = |promised: u64| (promised + 1..promised + 100).any(&is_committed);
        if let Some(promised) = self.newest_promise().filter(|step| steps.contains(step))
            && !newer(promised)
        {
            self.violate(format!(
                "step {promised} is pruned, and there is none after it"
            ));
        }
        self.removed.extend(steps);
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
