//! Somebody who tags the step: it opens it, puts the tag, and looks whether it is still committed.

use crate::state::{Attempt, State};

/// Where a tag is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Tagger {
    Look,
    Put,
    LookAgain,
    LookAside(Attempt),
    LookDeleted(Attempt),
    Ended,
}

impl Tagger {
    pub(crate) fn lives(self) -> bool {
        self != Self::Ended
    }
}

pub(crate) fn advance(state: &mut State) {
    state.tagger = match state.tagger {
        Tagger::Look if state.commit.is_none() => Tagger::Look,
        Tagger::Look => Tagger::Put,
        Tagger::Put => {
            state.tag = true;
            Tagger::LookAgain
        }
        Tagger::LookAgain => state.commit.map_or(Tagger::Ended, Tagger::LookAside),
        Tagger::LookAside(_) if state.hidden.is_some() => Tagger::Ended,
        Tagger::LookAside(found) => Tagger::LookDeleted(found),
        Tagger::LookDeleted(found) => {
            if state.deleted != Some(found) {
                state.tagged.insert(found);
            }
            Tagger::Ended
        }
        Tagger::Ended => Tagger::Ended,
    };
}
