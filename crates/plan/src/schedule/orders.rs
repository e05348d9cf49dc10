//! The orders that are known to work well.

use super::{Action, Schedule, Work};
use crate::Error;
use std::ops::Range;

/// The most actions that a schedule may have.
pub const MAX_ACTIONS: usize = 1 << 22;

impl Schedule {
    /// All micro-batches forward, then all of them back: simple, and every stage keeps the activations of all.
    ///
    /// # Errors
    /// If there are no stages, no micro-batches, or too many.
    pub fn gpipe(stages: usize, micro_batches: usize) -> Result<Self, Error> {
        Self::of_groups(stages, 1, micro_batches, |_, _| micro_batches)
    }

    /// One forward, one backward, in turn, once the pipeline is full: stage `s` of `n` keeps the activations of at most `n - s` micro-batches.
    ///
    /// # Errors
    /// If there are no stages, no micro-batches, or too many.
    pub fn one_forward_one_backward(stages: usize, micro_batches: usize) -> Result<Self, Error> {
        Self::of_groups(stages, 1, micro_batches, |stage, _| stages - stage - 1)
    }

    /// As [`one_forward_one_backward`](Self::one_forward_one_backward), with `chunks` chunks of layers on each stage: what is idle is divided by
    /// them, and messages are multiplied.
    ///
    /// Micro-batches go through the chunks in groups of as many as there are stages. If the stages do not divide them, groups
    /// are a little larger, so that a stage never waits for the end of the pipeline before it can begin its next chunk.
    ///
    /// # Errors
    /// If there are no stages, no chunks, no micro-batches, or too many.
    pub fn interleaved(stages: usize, chunks: usize, micro_batches: usize) -> Result<Self, Error> {
        if chunks == 1 {
            return Self::one_forward_one_backward(stages, micro_batches);
        }
        Self::of_groups(stages, chunks, micro_batches, |stage, group| {
            2 * (stages - stage - 1) + (chunks - 1) * group
        })
    }

    /// Micro-batches in groups, each through all chunks; `ahead` is how many forwards a stage does first, given the size of the largest group.
    fn of_groups(
        stages: usize,
        chunks: usize,
        micro_batches: usize,
        ahead: impl Fn(usize, usize) -> usize,
    ) -> Result<Self, Error> {
        check_sizes(stages, chunks, micro_batches)?;
        let groups = groups(stages, micro_batches);
        let largest = groups.iter().map(Range::len).max().unwrap_or(0);
        let forwards = each(&groups, (0..chunks).collect(), Work::Forward);
        let backwards = each(&groups, (0..chunks).rev().collect(), Work::Backward);
        let order = |stage: usize| {
            let (first, rest) = forwards.split_at(ahead(stage, largest).min(forwards.len()));
            let (among, last) = backwards.split_at(rest.len());
            let in_turn = rest.iter().zip(among).flat_map(|(f, b)| [*f, *b]);
            let first = first.iter().copied();
            first.chain(in_turn).chain(last.iter().copied()).collect()
        };
        Ok(Self {
            micro_batches,
            chunks,
            stages: (0..stages).map(order).collect(),
        })
    }
}

/// Cuts micro-batches into groups that are as equal as can be and no smaller than there are stages, if there are as many.
fn groups(stages: usize, micro_batches: usize) -> Vec<Range<usize>> {
    let count = (micro_batches / stages).max(1);
    let at = |group: usize| micro_batches * group / count;
    (0..count).map(|group| at(group)..at(group + 1)).collect()
}

fn each(groups: &[Range<usize>], chunks: Vec<usize>, work: Work) -> Vec<Action> {
    let group = |group: &Range<usize>| -> Vec<Action> {
        let chunk = |chunk: &usize| {
            let chunk = *chunk;
            group.clone().map(move |micro_batch| Action {
                work,
                micro_batch,
                chunk,
            })
        };
        chunks.iter().flat_map(chunk).collect()
    };
    groups.iter().flat_map(group).collect()
}

fn check_sizes(stages: usize, chunks: usize, micro_batches: usize) -> Result<(), Error> {
    let refuse = |reason: &str| {
        Err(Error::Schedule {
            stages,
            chunks,
            micro_batches,
            reason: reason.to_string(),
        })
    };
    if stages == 0 || chunks == 0 || micro_batches == 0 {
        return refuse("there must be at least one of each");
    }
    let actions = [chunks, micro_batches, 2]
        .iter()
        .try_fold(stages, |product, factor| product.checked_mul(*factor));
    match actions {
        Some(actions) if actions <= MAX_ACTIONS => Ok(()),
        _ => refuse(&format!("that is more than {MAX_ACTIONS} actions")),
    }
}
