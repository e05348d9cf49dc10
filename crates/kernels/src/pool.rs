//! The threads of one rank.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How many elements a task of an element-wise kernel takes: enough to pay for waking a thread, few enough to stay in its cache.
pub(crate) const BLOCK: usize = 1 << 14;

/// The threads that one rank computes with: the one that asks, and helpers that it wakes.
#[derive(Clone)]
pub struct Pool {
    helpers: Option<Arc<rayon::ThreadPool>>,
}

impl Pool {
    /// A pool of `threads` threads, at least one.
    ///
    /// # Panics
    /// If the system has no threads left.
    pub fn new(threads: usize) -> Self {
        if threads <= 1 {
            return Self { helpers: None };
        }
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads - 1);
        let builder = builder.thread_name(|index| format!("kernel-{index}"));
        let helpers = builder.build().expect("the system has threads");
        Self {
            helpers: Some(Arc::new(helpers)),
        }
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        let helpers = self.helpers.as_ref();
        1 + helpers.map_or(0, |helpers| helpers.current_num_threads())
    }

    /// Calls `work` with each task: on all threads if there are several tasks and threads, else on this one.
    pub(crate) fn each<T>(
        &self,
        tasks: impl Iterator<Item = T> + Send,
        work: impl Fn(T) + Send + Sync,
    ) {
        let helpers = self.helpers.as_ref().filter(|_| tasks.size_hint().0 > 1);
        let Some(helpers) = helpers else {
            return tasks.for_each(work);
        };
        let tasks = Mutex::new(tasks);
        let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
        let take_part = || {
            while let Some(task) = next() {
                work(task);
            }
        };
        helpers.in_place_scope(|scope| {
            for _ in 0..helpers.current_num_threads() {
                scope.spawn(|_| take_part());
            }
            take_part();
        });
    }

    /// What `work` makes of each task, in their order.
    pub(crate) fn map<T, U: Send>(
        &self,
        tasks: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T) -> U + Send + Sync,
    ) -> Vec<U> {
        let mut made: Vec<Option<U>> = Vec::new();
        made.resize_with(tasks.len(), || None);
        self.each(tasks.zip(&mut made), |(task, made)| {
            *made = Some(work(task))
        });
        made.into_iter().flatten().collect()
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
