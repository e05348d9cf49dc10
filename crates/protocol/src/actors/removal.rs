//! How a manifest is removed: under a lock, moved aside, compared, and deleted or brought back.
//!
//! Prunings remove what they planned; a committer takes back a `COMMIT` whose files are gone; an upload removes the older attempt that it
//! takes the place of.

use crate::rules::Rules;
use crate::state::{ATTEMPTS, Attempt, Attempts, Lock, State, Who};

/// Where a removal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Removal {
    Lock,
    /// Is something hidden that a dead pruning left?
    LookAside,
    IsItThere,
    Rivals,
    Hide,
    Compare,
    Tags,
    /// An upload puts its own attempt while the older one is aside.
    PutOwn,
    Confirm,
    Restore,
    /// Something else came under `COMMIT`: what?
    Blocked,
    Resolve {
        found: Option<Attempt>,
    },
    Unlock {
        removed: bool,
    },
}

/// Who removes what, and why.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) who: Who,
    /// None, if only what a dead one left is looked after.
    pub(crate) attempt: Option<Attempt>,
    /// Whether retention planned it.
    pub(crate) is_pruning: bool,
    /// Whether a tag keeps it.
    pub(crate) minds_tags: bool,
    /// What takes its place.
    pub(crate) by: Option<Attempt>,
}

pub(crate) enum Outcome {
    Go(Removal),
    Done { removed: bool },
}

pub(crate) fn advance(state: &mut State, at: Removal, task: Task, rules: &Rules) -> Outcome {
    use Outcome::Go;
    const KEPT: Outcome = Go(Removal::Unlock { removed: false });
    match at {
        Removal::Lock => match rules.locks && state.lock.is_some() && !state.lock_is_dead() {
            true => Outcome::Done { removed: false },
            false => {
                if rules.locks {
                    lock(state, task);
                }
                Go(Removal::LookAside)
            }
        },
        Removal::LookAside => match state.hidden.is_some() && rules.hides_create_only {
            true if rules.locks => Go(Removal::Restore),
            true => KEPT,
            false => Go(Removal::IsItThere),
        },
        Removal::IsItThere => match state.commit.is_some() && state.commit == task.attempt {
            true => Go(Removal::Rivals),
            false => KEPT,
        },
        Removal::Rivals => match rules.minds_rivals && has_rival(state, task) {
            true => KEPT,
            false => Go(Removal::Hide),
        },
        Removal::Hide => hide(state, rules),
        Removal::Compare => match state.hidden {
            None => KEPT,
            found if found != task.attempt => Go(Removal::Restore),
            _ if task.by.is_some() => Go(Removal::PutOwn),
            _ if task.minds_tags => Go(Removal::Tags),
            _ => Go(Removal::Confirm),
        },
        Removal::Tags => match state.tag {
            true => Go(Removal::Restore),
            false => Go(Removal::Confirm),
        },
        Removal::PutOwn => put_own(state, task),
        Removal::Confirm => {
            confirm(state, task);
            Go(Removal::Unlock { removed: true })
        }
        Removal::Restore => restore(state),
        Removal::Blocked => Go(Removal::Resolve {
            found: state.commit,
        }),
        Removal::Resolve { found } => {
            resolve(state, found, task);
            KEPT
        }
        // The files of what is removed go under the same lock.
        Removal::Unlock { removed: true } if task.is_pruning => Outcome::Done { removed: true },
        Removal::Unlock { removed } => {
            unlock(state, task.who);
            Outcome::Done { removed }
        }
    }
}

/// Whether another attempt has all its parts, and somebody who may commit it.
fn has_rival(state: &State, task: Task) -> bool {
    let is_rival = |attempt: &Attempt| {
        Some(*attempt) != task.attempt
            && Some(*attempt) != task.by
            && state.files(*attempt).parts == [true; 2]
            && state.is_under_way(*attempt)
    };
    ATTEMPTS.iter().any(is_rival)
}

fn hide(state: &mut State, rules: &Rules) -> Outcome {
    let is_taken = rules.hides_create_only && state.hidden.is_some();
    match state.commit.filter(|_| !is_taken) {
        Some(moved) => {
            (state.commit, state.hidden) = (None, Some(moved));
            Outcome::Go(Removal::Compare)
        }
        None => Outcome::Go(Removal::Unlock { removed: false }),
    }
}

fn put_own(state: &mut State, task: Task) -> Outcome {
    if state.commit.is_some() {
        return Outcome::Go(Removal::Restore);
    }
    state.commit = task.by;
    if let Some(replaced) = task.attempt {
        state.excused.insert(replaced);
    }
    Outcome::Go(Removal::Confirm)
}

fn confirm(state: &mut State, task: Task) {
    let Some(moved) = state.hidden.take() else {
        return;
    };
    state.deleted = Some(moved);
    let may_go = task.by.is_some() || !state.tagged.contains(moved);
    if Some(moved) == task.attempt && task.is_pruning && may_go {
        state.excused.insert(moved);
    }
}

/// Takes the lock, also that of somebody dead. What they wanted to remove is remembered.
fn lock(state: &mut State, task: Task) {
    let mut wanted = state.lock.map_or(Attempts::default(), |lock| lock.wanted);
    if let Some(attempt) = task.attempt {
        wanted.insert(attempt);
    }
    state.lock = Some(Lock {
        who: task.who,
        wanted,
    });
}

pub(crate) fn unlock(state: &mut State, who: Who) {
    if state.lock.is_some_and(|lock| lock.who == who) {
        state.lock = None;
    }
}

/// Brings back what is hidden, unless something else is committed by now.
fn restore(state: &mut State) -> Outcome {
    if state.commit.is_some() && state.hidden.is_some() {
        return Outcome::Go(Removal::Blocked);
    }
    state.commit = state.commit.or(state.hidden.take());
    Outcome::Go(Removal::Unlock { removed: false })
}

/// Decides between what is hidden and what came under `COMMIT`.
///
/// What has no files was deleted, and put again by one of its writers who stood still. What was to be removed can only have been put again by one of its writers who stood still: it was replaced by what is hidden. Anything
/// else has replaced what is hidden.
fn resolve(state: &mut State, found: Option<Attempt>, task: Task) {
    let wanted = state.lock.map_or(Attempts::default(), |lock| lock.wanted);
    let is_stale = |found| wanted.contains(found) || Some(found) == task.attempt;
    let Some(hidden) = state.hidden.take() else {
        return;
    };
    match found {
        Some(found) if found == hidden => {}
        Some(found) if !state.files(found).are_whole() => state.commit = Some(hidden),
        Some(found) if is_stale(found) && !is_stale(hidden) => state.commit = Some(hidden),
        Some(_) => state.deleted = Some(hidden),
        None => state.commit = state.commit.or(Some(hidden)),
    }
}

/// What a pruning that keeps no locks does for one that died.
pub(crate) fn bring_back(state: &mut State) {
    match (state.commit, state.hidden.take()) {
        (None, hidden) => state.commit = hidden,
        (commit, hidden) if commit == hidden => {}
        (_, hidden) => state.deleted = hidden,
    }
}
