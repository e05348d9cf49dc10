//! The threads of one rank.

use rayon::prelude::*;
use std::fmt;
use std::sync::Arc;

/// How many elements a task of an element-wise kernel takes: enough to pay for waking a thread, few enough to stay in its cache.
pub(crate) const BLOCK: usize = 1 << 14;

/// The threads that one rank computes with.
#[derive(Clone)]
pub struct Pool(Arc<rayon::ThreadPool>);

impl Pool {
    /// A pool of `threads` threads, at least one.
    ///
    /// # Panics
    /// If the system has no threads left.
    pub fn new(threads: usize) -> Self {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1));
        let builder = builder.thread_name(|index| format!("kernel-{index}"));
        Self(Arc::new(builder.build().expect("the system has threads")))
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.0.current_num_threads()
    }

    /// Runs `work` on the pool, where rayon's iterators use all of its threads.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.install(work)
    }

    /// Calls `work` with each task: on all threads if there are several tasks and threads, else on this one.
    pub(crate) fn each<T: Send>(
        &self,
        tasks: impl Iterator<Item = T>,
        work: impl Fn(T) + Send + Sync,
    ) {
        self.map(tasks, work);
    }

    /// What `work` makes of each task, in their order.
    pub(crate) fn map<T: Send, U: Send>(
        &self,
        tasks: impl Iterator<Item = T>,
        work: impl Fn(T) -> U + Send + Sync,
    ) -> Vec<U> {
        let tasks: Vec<T> = tasks.collect();
        if self.threads() == 1 || tasks.len() <= 1 {
            tasks.into_iter().map(work).collect()
        } else {
            self.install(|| tasks.into_par_iter().map(work).collect())
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({})", self.threads())
    }
}

/// How many rows of `width` elements a task takes.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (BLOCK / width.max(1)).max(1)
}
