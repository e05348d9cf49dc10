//! Passes over the elements of a tensor, block by block, on several threads.
//!
//! Blocks have a fixed size and their results come back in order, so what is made of them depends neither on the number of
//! threads nor on how fast each was.

use crate::Error;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Elements of a block.
pub(crate) const BLOCK: usize = 1 << 14;

/// The blocks of a tensor of `elements` elements.
pub(crate) fn blocks(elements: usize) -> impl ExactSizeIterator<Item = Range<usize>> + Clone {
    (0..elements.div_ceil(BLOCK))
        .map(move |index| index * BLOCK..((index + 1) * BLOCK).min(elements))
}

/// Does pieces of work on up to `threads` threads, each with a state of its own, and returns those states, in no order.
pub(crate) fn fold<W, S>(
    threads: usize,
    work: impl ExactSizeIterator<Item = W> + Send,
    state: impl Fn() -> S + Sync,
    step: impl Fn(&mut S, usize, W) -> Result<(), Error> + Sync,
) -> Result<Vec<S>, Error>
where
    W: Send,
    S: Send,
{
    let threads = threads.clamp(1, work.len().max(1));
    if threads == 1 {
        let mut state = state();
        for (index, work) in work.enumerate() {
            step(&mut state, index, work)?;
        }
        return Ok(vec![state]);
    }
    let failed = AtomicBool::new(false);
    let queue = Mutex::new(work.enumerate());
    let run = || {
        let mut state = state();
        while !failed.load(Ordering::Relaxed) {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((index, work)) = next else {
                break;
            };
            if let Err(error) = step(&mut state, index, work) {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(state)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let results = workers.into_iter().map(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.collect()
    })
}

/// The results of pieces of work, in their order.
pub(crate) fn map<W, S, T>(
    threads: usize,
    work: impl ExactSizeIterator<Item = W> + Send,
    state: impl Fn() -> S + Sync,
    step: impl Fn(&mut S, W) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error>
where
    W: Send,
    S: Send,
    T: Send,
{
    let states = fold(
        threads,
        work,
        || (state(), Vec::new()),
        |(state, results), index, work| {
            results.push((index, step(state, work)?));
            Ok(())
        },
    )?;
    let mut results: Vec<(usize, T)> = states
        .into_iter()
        .flat_map(|(_, results)| results)
        .collect();
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    //! Order is kept, and an error stops the rest.

    use super::*;

    #[test]
    fn results_come_back_in_order() {
        for threads in [1, 2, 7] {
            let double = |(): &mut (), work: usize| Ok(work * 2);
            let results = map(threads, 0..1000_usize, || (), double).unwrap();
            assert_eq!(results, (0..1000).map(|work| work * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_failure_is_returned() {
        let fail = |(): &mut (), work: usize| match work {
            500 => Err(Error::Tensor {
                name: "x".into(),
                reason: "is the 500th".into(),
            }),
            _ => Ok(()),
        };
        assert!(map(4, 0..1000_usize, || (), fail).is_err());
    }

    #[test]
    fn blocks_cover_a_tensor_once() {
        for elements in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            let mut next = 0;
            for block in blocks(elements) {
                assert_eq!(block.start, next);
                next = block.end;
            }
            assert_eq!(next, elements);
        }
    }
}
