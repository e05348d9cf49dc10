//! A pruning: it plans, removes what it planned, and deletes the files of what is deleted.

use super::removal::{self, Outcome, Removal, Task, bring_back};
use crate::rules::Rules;
use crate::state::{Attempt, Attempts, Files, Lock, State, Who};

/// Why a pruning removes a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Why {
    /// Retention does not keep it.
    Planned,
    /// Its files are gone.
    Gone,
}

/// Where a pruning is, and how often it begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Pruner {
    Plan {
        left: u8,
    },
    PlanAside {
        left: u8,
        planned: Option<Attempt>,
    },
    BringBack {
        left: u8,
    },
    Remove {
        left: u8,
        planned: Option<Attempt>,
        why: Why,
        at: Removal,
    },
    LockToPurge {
        left: u8,
    },
    Purge {
        left: u8,
    },
    PurgeIsBack {
        left: u8,
        going: Attempt,
    },
    PurgeIsWhole {
        left: u8,
        going: Attempt,
    },
    PurgeIsAside {
        left: u8,
        going: Attempt,
    },
    Unmark {
        left: u8,
    },
    EraseData {
        left: u8,
        going: Attempt,
    },
    EraseParts {
        left: u8,
        going: Attempt,
    },
    ListBeside {
        left: u8,
    },
    LookBeside {
        left: u8,
    },
    LookBesideAgain {
        left: u8,
    },
    DeleteBeside {
        left: u8,
    },
    Unlock {
        left: u8,
    },
    Ended,
    Dead,
}

impl Pruner {
    pub(crate) fn new(passes: u8) -> Self {
        Self::Plan { left: passes }
    }

    pub(crate) fn lives(self) -> bool {
        !matches!(self, Self::Ended | Self::Dead)
    }

    fn again(left: u8) -> Self {
        match left {
            0 | 1 => Self::Ended,
            _ => Self::Plan { left: left - 1 },
        }
    }
}

pub(crate) fn advance(state: &mut State, index: usize, rules: &Rules) {
    state.pruners[index] = match state.pruners[index] {
        Pruner::Plan { left } => Pruner::PlanAside {
            left,
            planned: state.commit,
        },
        Pruner::PlanAside { left, planned } => plan(state, left, planned, rules),
        Pruner::BringBack { left } => {
            bring_back(state);
            Pruner::again(left)
        }
        Pruner::Remove {
            left,
            planned,
            why,
            at,
        } => {
            let task = Task {
                who: Who::Pruner(index),
                attempt: planned,
                is_pruning: why == Why::Planned,
                minds_tags: why == Why::Planned,
                by: None,
            };
            match removal::advance(state, at, task, rules) {
                Outcome::Go(at) => Pruner::Remove {
                    left,
                    planned,
                    why,
                    at,
                },
                Outcome::Done { removed: true } if why == Why::Gone => Pruner::again(left),
                Outcome::Done { removed: true } => Pruner::Purge { left },
                Outcome::Done { removed: false } => Pruner::again(left),
            }
        }
        Pruner::LockToPurge { left } => {
            let (is_held, is_dead) = (state.lock.is_some(), state.lock_is_dead());
            match rules.locks && is_held {
                // What was left under the lock comes first.
                true if is_dead => Pruner::Remove {
                    left,
                    planned: None,
                    why: Why::Planned,
                    at: Removal::Lock,
                },
                true => Pruner::again(left),
                false => {
                    state.lock = rules.locks.then_some(Lock {
                        who: Who::Pruner(index),
                        wanted: Attempts::default(),
                    });
                    Pruner::Purge { left }
                }
            }
        }
        Pruner::Unlock { left } => {
            removal::unlock(state, Who::Pruner(index));
            Pruner::again(left)
        }
        pruner => purge(state, pruner),
    };
}

/// Whole steps without a tag go, but for the newest; a step that a dead pruning hid comes back; the files of one that is deleted go.
fn plan(state: &State, left: u8, planned: Option<Attempt>, rules: &Rules) -> Pruner {
    if state.hidden.is_some() {
        return match state.hidden_is_abandoned(rules) {
            // Under a lock that is part of the removal.
            true if !rules.locks => Pruner::BringBack { left },
            true => Pruner::Remove {
                left,
                planned: None,
                why: Why::Planned,
                at: Removal::Lock,
            },
            false => Pruner::again(left),
        };
    }
    match planned {
        None => Pruner::LockToPurge { left },
        Some(Attempt::Replacement) => Pruner::again(left),
        Some(planned) if state.tag || !state.files(planned).are_whole() => Pruner::again(left),
        Some(_) => Pruner::Remove {
            left,
            planned,
            why: Why::Planned,
            at: Removal::Lock,
        },
    }
}

fn purge(state: &mut State, pruner: Pruner) -> Pruner {
    match pruner {
        Pruner::Purge { left } => match state.deleted {
            None => Pruner::Unlock { left },
            Some(going) => Pruner::PurgeIsBack { left, going },
        },
        Pruner::PurgeIsBack { left, going } => match state.commit {
            // Brought back, or put by a writer who stood still while its files went.
            Some(found) if found == going => Pruner::PurgeIsWhole { left, going },
            Some(_) => Pruner::EraseData { left, going },
            None => Pruner::PurgeIsAside { left, going },
        },
        Pruner::PurgeIsWhole { left, going } => match state.files(going).are_whole() {
            true => Pruner::Unmark { left },
            false => Pruner::Remove {
                left,
                planned: Some(going),
                why: Why::Gone,
                at: Removal::Hide,
            },
        },
        Pruner::PurgeIsAside { left, going } => match state.hidden {
            Some(found) if found == going => Pruner::Unmark { left },
            _ => Pruner::EraseData { left, going },
        },
        Pruner::EraseData { left, going } => {
            state.files_mut(going).data = [false; 2];
            Pruner::EraseParts { left, going }
        }
        Pruner::EraseParts { left, going } => {
            *state.files_mut(going) = Files::default();
            Pruner::ListBeside { left }
        }
        Pruner::ListBeside { left } => match state.tag {
            true => Pruner::LookBeside { left },
            false => Pruner::Unmark { left },
        },
        Pruner::LookBeside { left } => match state.commit {
            Some(_) => Pruner::Unmark { left },
            None => Pruner::LookBesideAgain { left },
        },
        Pruner::LookBesideAgain { left } => match state.hidden {
            Some(_) => Pruner::Unmark { left },
            None => Pruner::DeleteBeside { left },
        },
        Pruner::DeleteBeside { left } => {
            state.tag = false;
            Pruner::Unmark { left }
        }
        Pruner::Unmark { left } => {
            state.deleted = None;
            Pruner::Unlock { left }
        }
        pruner => pruner,
    }
}
