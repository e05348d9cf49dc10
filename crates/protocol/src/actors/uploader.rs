//! An upload of what an earlier launch left on its fast tier: it takes the place of an older attempt, and gives way to a younger one.

use super::looking::{Look, Looked, look};
use super::removal::{self, Outcome, Removal, Task};
use crate::rules::Rules;
use crate::state::{Attempt, State, Who};

/// Where an upload is; `tries` are those that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Uploader {
    Decide {
        at: Look,
        tries: u8,
    },
    Data {
        over: Option<Attempt>,
        tries: u8,
    },
    Part {
        over: Option<Attempt>,
        tries: u8,
    },
    LastLook {
        at: Look,
        tries: u8,
    },
    Create {
        tries: u8,
    },
    Overwrite,
    Replace {
        at: Removal,
        over: Attempt,
        tries: u8,
    },
    CheckDeleted,
    CheckFiles,
    TakeBack(Removal),
    Tell,
    Ended,
    Dead,
}

impl Uploader {
    pub(crate) const BEGIN: Self = Self::Decide {
        at: Look::Commit,
        tries: 2,
    };

    pub(crate) fn lives(self) -> bool {
        !matches!(self, Self::Ended | Self::Dead)
    }

    fn again(tries: u8) -> Self {
        match tries {
            0 | 1 => Self::Ended,
            _ => Self::Decide {
                at: Look::Commit,
                tries: tries - 1,
            },
        }
    }
}

const OWN: Attempt = Attempt::Uploaded;

pub(crate) fn advance(state: &mut State, rules: &Rules) {
    state.uploader = match state.uploader {
        Uploader::Decide { at, tries } => match look(state, at) {
            Looked::Next(at) => Uploader::Decide { at, tries },
            Looked::Found(OWN) => Uploader::Tell,
            Looked::Found(Attempt::Saved) => Uploader::Data {
                over: Some(Attempt::Saved),
                tries,
            },
            // A younger one is there: this one is not needed any more.
            Looked::Found(Attempt::Replacement) => Uploader::Ended,
            Looked::Nothing => Uploader::Data { over: None, tries },
        },
        Uploader::Data { over, tries } => {
            // What has a part is there already.
            if !state.files(OWN).parts[0] {
                state.files_mut(OWN).data = [true; 2];
            }
            Uploader::Part { over, tries }
        }
        Uploader::Part { over, tries } => {
            state.files_mut(OWN).parts = [true; 2];
            match over {
                None => Uploader::LastLook {
                    at: Look::Commit,
                    tries,
                },
                Some(_) if !rules.uploads_over_what_it_compared => Uploader::Overwrite,
                Some(over) => Uploader::Replace {
                    at: Removal::Lock,
                    over,
                    tries,
                },
            }
        }
        Uploader::Tell => {
            state.promised.insert(OWN);
            Uploader::Ended
        }
        uploader => commit(state, uploader, rules),
    };
}

fn commit(state: &mut State, uploader: Uploader, rules: &Rules) -> Uploader {
    let task = |over, by: Option<Attempt>| Task {
        who: Who::Uploader,
        attempt: Some(over),
        is_pruning: false,
        minds_tags: by.is_none(),
        by,
    };
    match uploader {
        Uploader::LastLook { at, tries } => match look(state, at) {
            Looked::Next(at) => Uploader::LastLook { at, tries },
            Looked::Found(OWN) => Uploader::Tell,
            Looked::Found(_) => Uploader::again(tries),
            Looked::Nothing => Uploader::Create { tries },
        },
        Uploader::Create { tries } => match state.commit {
            None => {
                state.commit = Some(OWN);
                Uploader::CheckDeleted
            }
            Some(_) => Uploader::again(tries),
        },
        Uploader::Overwrite => {
            state.excuse_all(|attempt| attempt < OWN);
            state.commit = Some(OWN);
            Uploader::CheckDeleted
        }
        Uploader::Replace { at, over, tries } => {
            match removal::advance(state, at, task(over, Some(OWN)), rules) {
                Outcome::Go(at) => Uploader::Replace { at, over, tries },
                Outcome::Done { removed: true } => Uploader::CheckDeleted,
                Outcome::Done { removed: false } => Uploader::again(tries),
            }
        }
        Uploader::CheckDeleted if state.deleted == Some(OWN) => Uploader::TakeBack(Removal::Lock),
        Uploader::CheckDeleted => Uploader::CheckFiles,
        Uploader::CheckFiles if state.files(OWN).are_whole() => Uploader::Tell,
        Uploader::CheckFiles => Uploader::TakeBack(Removal::Lock),
        Uploader::TakeBack(at) => match removal::advance(state, at, task(OWN, None), rules) {
            Outcome::Go(at) => Uploader::TakeBack(at),
            Outcome::Done { .. } => Uploader::Ended,
        },
        uploader => uploader,
    }
}
