//! What must hold of keepers: what one of them took and outlived is committed, or it is known why not.

use super::Judge;
use crate::disk::ProcessId;
use crate::ledger::{Capture, CaptureEnd, Ledger, Rule};
use crate::world::State;
use std::collections::{BTreeMap, BTreeSet};

impl Judge {
    /// No keeper that lives forgets a capture, or gives one up for nothing. That what it ended is there is a promise like any other.
    pub(super) fn captures_came_to_an_end(&self) {
        let mut state = self.world().lock();
        let captures = state.ledger.captures.clone();
        let mut broken = Vec::new();
        for ((keeper, _), capture) in &captures {
            if !state.processes[*keeper].is_alive {
                continue;
            }
            state.ledger.check(Rule::Kept);
            let (step, writer) = (capture.about.step, capture.about.writer);
            match &capture.end {
                CaptureEnd::Open if !is_superseded(&captures, *keeper, capture) => broken.push(format!(
                    "a keeper forgot what writer {writer} had captured of step {step}"
                )),
                CaptureEnd::Stuck { reason, is_given_up } if !is_given_up && !is_excused(&state, capture) => broken.push(format!(
                    "a keeper gave up what writer {writer} had captured of step {step} for nothing: {reason}"
                )),
                _ => {}
            }
        }
        drop(state);
        broken.into_iter().for_each(|text| self.violate(text));
    }
}

/// Whether the keeper has a newer capture that is complete or committed, for which it lets those go whose writers left while they lived.
fn is_superseded(
    captures: &BTreeMap<(ProcessId, u64), Capture>,
    keeper: ProcessId,
    old: &Capture,
) -> bool {
    let newer = captures.iter().filter(|((process, _), other)| {
        *process == keeper && other.about.attempt != old.about.attempt && other.at >= old.at
    });
    newer.into_iter().any(|(_, other)| {
        let writers = captures
            .iter()
            .filter(|((process, _), same)| {
                *process == keeper && same.about.attempt == other.about.attempt
            })
            .count();
        let is_committed = matches!(other.end, CaptureEnd::Committed | CaptureEnd::Ended);
        writers == other.about.world || is_committed
    })
}

/// Whether there is a reason for a capture not to be committed: a writer is missing or late, a keeper met a fault, another
/// attempt has the step, or somebody deleted or harmed it.
fn is_excused(state: &State, capture: &Capture) -> bool {
    let Ledger {
        captures,
        commits,
        rotted,
        ..
    } = &state.ledger;
    let about = &capture.about;
    let same = captures.iter().filter(|(_, other)| {
        other.about.attempt == about.attempt && other.about.step == about.step
    });
    let unharmed = same.filter(|((keeper, _), other)| {
        let keeper = &state.processes[*keeper];
        let is_late = other.at > capture.at;
        keeper.is_alive && keeper.faults == 0 && !is_late && other.end != CaptureEnd::Abandoned
    });
    let writers: BTreeSet<usize> = unharmed.map(|(_, other)| other.about.writer).collect();
    let is_taken = commits
        .iter()
        .any(|(step, attempt)| *step == about.step && *attempt != about.attempt);
    writers.len() < about.world
        || is_taken
        || !rotted.is_empty()
        || state.ledger.is_removed(about.step)
}
