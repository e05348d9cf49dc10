//! The look for the attempt that stands: `COMMIT`, `HIDDEN`, and `COMMIT` once more, each a move of its own.

use crate::state::{Attempt, State};

/// Which key is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Look {
    Commit,
    Hidden,
    CommitAgain,
}

/// What came of it.
pub(crate) enum Looked {
    Next(Look),
    Found(Attempt),
    Nothing,
}

pub(crate) fn look(state: &State, at: Look) -> Looked {
    match at {
        Look::Commit => state
            .commit
            .map_or(Looked::Next(Look::Hidden), Looked::Found),
        Look::Hidden => state
            .hidden
            .map_or(Looked::Next(Look::CommitAgain), Looked::Found),
        Look::CommitAgain => state.commit.map_or(Looked::Nothing, Looked::Found),
    }
}
