//! A launch that replaces the step, whatever is there.

use crate::rules::Rules;
use crate::state::{Attempt, Files, State};

/// Where a replacement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Replacer {
    Write,
    Put,
    LookAside,
    /// For who holds the lock of the step.
    Wait,
    LookAgain,
    CheckDeleted,
    CheckFiles,
    Tell,
    Ended,
}

impl Replacer {
    pub(crate) fn lives(self) -> bool {
        self != Self::Ended
    }
}

pub(crate) fn advance(state: &mut State, rules: &Rules) {
    let own = Attempt::Replacement;
    state.replacer = match state.replacer {
        Replacer::Write => {
            *state.files_mut(own) = Files {
                data: [true; 2],
                parts: [true; 2],
            };
            Replacer::Put
        }
        Replacer::Put => {
            state.excuse_all(|_| true);
            state.commit = Some(own);
            match rules.waits_for_removals {
                true => Replacer::LookAside,
                false => Replacer::CheckDeleted,
            }
        }
        Replacer::LookAside => match state.hidden {
            Some(hidden) if hidden != own => Replacer::Wait,
            _ => Replacer::LookAgain,
        },
        Replacer::Wait if state.lock.is_some() && !state.lock_is_dead() => Replacer::Wait,
        Replacer::Wait => Replacer::LookAgain,
        Replacer::LookAgain => match state.standing() {
            Some(found) if found != own => Replacer::Put,
            _ => Replacer::CheckDeleted,
        },
        Replacer::CheckDeleted => match state.deleted == Some(own) {
            true => Replacer::Ended,
            false => Replacer::CheckFiles,
        },
        Replacer::CheckFiles => match state.files(own).are_whole() {
            true => Replacer::Tell,
            false => Replacer::Ended,
        },
        Replacer::Tell => {
            state.promised.insert(own);
            Replacer::Ended
        }
        Replacer::Ended => Replacer::Ended,
    };
}
