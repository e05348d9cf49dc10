//! Many stretches of tensors, looked at by several threads and taken account of in order.

use super::STRETCH_ELEMENTS;
use crate::Error;
use cairn_sharding::{Piece, Region};
use cairn_tensor::element_count;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// A part of a tensor that is read at once.
#[derive(Debug)]
pub(super) struct Stretch {
    /// Which tensor.
    pub(super) tensor: usize,
    pub(super) piece: Piece,
}

/// The stretches of tensor number `tensor`; one if it must be read `whole`.
pub(super) fn stretches(
    tensor: usize,
    shape: &[usize],
    whole: bool,
) -> impl Iterator<Item = Stretch> + use<> {
    let count = element_count(shape).unwrap_or(0);
    let step = if whole { count } else { STRETCH_ELEMENTS };
    let region = Region::whole(shape);
    (0..count).step_by(step.max(1)).map(move |first| {
        let range = first..count.min(first.saturating_add(step));
        let flat = (range.len() < count).then_some(range);
        let region = region.clone();
        let piece = Piece { region, flat };
        Stretch { tensor, piece }
    })
}

/// What was learned ahead of its turn.
struct Waiting<T, F> {
    next: usize,
    early: BTreeMap<usize, (Stretch, T)>,
    take: F,
    failure: Option<Error>,
}

/// Calls `look` for every stretch, on up to `threads` threads, and `take` with what it learned, in order.
///
/// Stretches are cut as they are needed: a tensor may claim more of them than there is memory to list.
pub(super) fn scan<T: Send>(
    stretches: impl Iterator<Item = Stretch> + Send,
    threads: usize,
    look: impl Fn(&Stretch) -> Result<T, Error> + Sync,
    take: impl FnMut(&Stretch, T) + Send,
) -> Result<(), Error> {
    let left = Mutex::new(stretches.enumerate());
    let waiting = Mutex::new(Waiting {
        next: 0,
        early: BTreeMap::new(),
        take,
        failure: None,
    });
    let work = || {
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((index, stretch)) = next else {
                return;
            };
            let learned = look(&stretch);
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.is_over(index, stretch, learned) {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let waiting = waiting.into_inner().unwrap_or_else(PoisonError::into_inner);
    waiting.failure.map_or(Ok(()), Err)
}

impl<T, F: FnMut(&Stretch, T)> Waiting<T, F> {
    /// Takes account of what was learned of stretch `index`, and of those that waited for it; whether something failed.
    fn is_over(&mut self, index: usize, stretch: Stretch, learned: Result<T, Error>) -> bool {
        match learned {
            Ok(learned) => {
                self.early.insert(index, (stretch, learned));
            }
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
        while let Some((stretch, learned)) = self.early.remove(&self.next) {
            (self.take)(&stretch, learned);
            self.next += 1;
        }
        self.failure.is_some()
    }
}
