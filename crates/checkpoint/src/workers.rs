//! Numbered work that several threads share.

use crate::Error;
use crate::sync::thread;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Threads that keep a service busy, which answers each of them after a while.
const FAR_THREADS: usize = 16;

/// More threads get nothing more out of one machine's memory.
const MAX_MEMORY_THREADS: usize = 16;

/// How many threads ask a store: several if each waits for its answers.
pub(crate) fn asking(is_far: bool) -> usize {
    if is_far { FAR_THREADS } else { 1 }
}

/// How many threads work on what is in memory. In a simulation it does not depend on the machine.
pub(crate) fn computing() -> usize {
    if cfg!(feature = "shuttle") {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.min(MAX_MEMORY_THREADS)
}

/// Does `work` for every number below `count` and returns what came of it, in order. It ends at a failure.
///
/// What takes a while is done by several `threads` at the same time.
pub(crate) fn gather<T: Send + Sync, E: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    if threads.min(count) < 2 {
        return (0..count).map(work).collect();
    }
    let workers = Workers::new(count);
    let done: Vec<OnceLock<T>> = (0..count).map(|_| OnceLock::new()).collect();
    thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(|| {
                workers.each(|index| {
                    let result = work(index)?;
                    // Each number is given out once.
                    let _ = done[index].set(result);
                    Ok(())
                });
            });
        }
    });
    workers.finish()?;
    Ok(done.into_iter().filter_map(OnceLock::into_inner).collect())
}

/// Numbered work that several threads take from, until it is done or one of them fails.
#[derive(Debug)]
pub(crate) struct Workers<E = Error> {
    next: AtomicUsize,
    count: usize,
    failure: Mutex<Option<E>>,
    failed: AtomicBool,
}

impl<E> Workers<E> {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            next: AtomicUsize::new(0),
            count,
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
        }
    }

    /// Takes work and does it, for as long as there is some.
    pub(crate) fn each(&self, mut work: impl FnMut(usize) -> Result<(), E>) {
        while !self.has_failed() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                return;
            }
            self.note(work(index));
        }
    }

    /// Remembers the first failure, which stops everyone.
    pub(crate) fn note(&self, result: Result<(), E>) {
        if let Err(error) = result {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(error);
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn finish(self) -> Result<(), E> {
        let failure = self.failure.into_inner();
        failure
            .unwrap_or_else(PoisonError::into_inner)
            .map_or(Ok(()), Err)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    //! Many threads do what one would, in any order, and tell it in order.

    use super::*;
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn what_is_done_at_once_comes_back_in_order() {
        for (count, threads) in [(0, 8), (1, 8), (100, 8), (100, 1)] {
            let done = gather(count, threads, |number| {
                sleep(Duration::from_micros(100 - number as u64));
                Ok::<_, Error>(number * 2)
            });
            let expected: Vec<usize> = (0..count).map(|number| number * 2).collect();
            assert_eq!(done.unwrap(), expected);
        }
    }

    #[test]
    fn work_that_takes_a_while_is_done_at_the_same_time() {
        let together = std::sync::Barrier::new(FAR_THREADS);
        gather(FAR_THREADS, FAR_THREADS, |_| {
            together.wait();
            Ok::<_, Error>(())
        })
        .unwrap();
    }

    #[test]
    fn a_failure_ends_it_and_is_told() {
        for threads in [8, 1] {
            let begun = AtomicUsize::new(0);
            let done = gather(10_000, threads, |number| {
                begun.fetch_add(1, Ordering::Relaxed);
                match number {
                    7 => Err(Error::damaged("it", "is spoilt")),
                    _ => Ok(()),
                }
            });
            assert!(done.unwrap_err().is_damage());
            assert!(begun.into_inner() < 10_000);
        }
    }
}
