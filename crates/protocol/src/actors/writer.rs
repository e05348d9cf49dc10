//! A writer of a launch that saves the step if it is free: it writes, waits, and commits when all parts are there. Either may commit.

use super::looking::{Look, Looked, look};
use super::removal::{self, Outcome, Removal, Task};
use crate::rules::Rules;
use crate::state::{Attempt, State, Who};

/// Where a writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Writer {
    Begin(Look),
    Data,
    Part,
    Wait(Look),
    ListParts,
    ListFiles,
    /// The last look for another attempt, now that all parts are there.
    LastLook(Look),
    Put,
    CheckDeleted,
    CheckFiles,
    /// The look for what is hidden that came after `COMMIT`.
    CheckAlone,
    /// The look after what others have put was made durable.
    Settled,
    Tell,
    TakeBackLook,
    TakeBackDelete,
    TakeBack(Removal),
    Ended,
    Dead,
}

impl Writer {
    pub(crate) const BEGIN: Self = Self::Begin(Look::Commit);

    pub(crate) fn lives(self) -> bool {
        !matches!(self, Self::Ended | Self::Dead)
    }
}

const OWN: Attempt = Attempt::Saved;

pub(crate) fn advance(state: &mut State, index: usize, rules: &Rules) {
    state.writers[index] = match state.writers[index] {
        Writer::Begin(at) => match look(state, at) {
            Looked::Next(at) => Writer::Begin(at),
            Looked::Found(_) => Writer::Ended,
            Looked::Nothing => Writer::Data,
        },
        Writer::Data => {
            state.files_mut(OWN).data[index] = true;
            Writer::Part
        }
        Writer::Part => {
            state.files_mut(OWN).parts[index] = true;
            Writer::Wait(Look::Commit)
        }
        Writer::Wait(at) => match look(state, at) {
            Looked::Next(at) => Writer::Wait(at),
            Looked::Found(OWN) => Writer::Settled,
            Looked::Found(_) => Writer::Ended,
            Looked::Nothing => Writer::ListParts,
        },
        Writer::Settled => match state.standing() {
            Some(_) => Writer::Tell,
            None => Writer::Wait(Look::Commit),
        },
        Writer::Tell => {
            state.promised.insert(OWN);
            Writer::Ended
        }
        writer => commit(state, writer, index, rules),
    };
}

fn commit(state: &mut State, writer: Writer, index: usize, rules: &Rules) -> Writer {
    let take_back = match rules.takes_back_what_it_compared {
        true => Writer::TakeBack(Removal::Lock),
        false => Writer::TakeBackLook,
    };
    match writer {
        Writer::ListParts => match state.files(OWN).parts == [true; 2] {
            true if index == 1 && !state.takes_over => Writer::Wait(Look::Commit),
            true => Writer::ListFiles,
            false => Writer::Wait(Look::Commit),
        },
        Writer::ListFiles => match state.files(OWN).are_whole() {
            true if rules.looks_before_put => Writer::LastLook(Look::Commit),
            true => Writer::Put,
            false => Writer::Ended,
        },
        Writer::LastLook(at) => match look(state, at) {
            Looked::Next(at) => Writer::LastLook(at),
            Looked::Found(OWN) => Writer::Settled,
            Looked::Found(_) => Writer::Ended,
            Looked::Nothing => Writer::Put,
        },
        Writer::Put => match state.commit {
            None => {
                state.commit = Some(OWN);
                Writer::CheckDeleted
            }
            Some(OWN) => Writer::Settled,
            Some(_) => Writer::Ended,
        },
        Writer::CheckDeleted if state.deleted == Some(OWN) => take_back,
        Writer::CheckDeleted => Writer::CheckFiles,
        Writer::CheckFiles if !state.files(OWN).are_whole() => take_back,
        Writer::CheckFiles if rules.looks_before_put => Writer::Tell,
        Writer::CheckFiles => Writer::CheckAlone,
        Writer::CheckAlone => match state.hidden {
            Some(found) if found != OWN => take_back,
            _ => Writer::Tell,
        },
        Writer::TakeBackLook if state.commit == Some(OWN) => Writer::TakeBackDelete,
        Writer::TakeBackLook => Writer::Ended,
        Writer::TakeBackDelete => {
            state.commit = None;
            Writer::Ended
        }
        Writer::TakeBack(at) => {
            let task = Task {
                who: Who::Writer(index),
                attempt: Some(OWN),
                is_pruning: false,
                minds_tags: true,
                by: None,
            };
            match removal::advance(state, at, task, rules) {
                Outcome::Go(at) => Writer::TakeBack(at),
                Outcome::Done { .. } => Writer::Ended,
            }
        }
        writer => writer,
    }
}

/// A failure before anything is written; the training loop saves the step again, at a later moment.
pub(crate) fn fail(state: &mut State, index: usize, rules: &Rules) {
    // Under another name, parts of the other writer are missing: nothing of it is ever committed.
    state.writers[index] = match rules.counts_attempts {
        true => Writer::Ended,
        false => {
            state.torn = true;
            Writer::BEGIN
        }
    };
}
