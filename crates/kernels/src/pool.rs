//! The threads of one rank.

use crate::Real;
use crate::buffer::{Buffer, Shelves};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How many elements a task of an element-wise kernel takes: enough to pay for waking a thread, few enough to stay in its cache.
pub(crate) const BLOCK: usize = 1 << 14;

/// What one rank computes with: the thread that asks, helpers that it wakes, and memory that is used again.
#[derive(Clone)]
pub struct Pool {
    helpers: Option<Arc<rayon::ThreadPool>>,
    pub(crate) shelves: Arc<Shelves>,
}

impl Pool {
    /// A pool of `threads` threads, at least one.
    ///
    /// # Panics
    /// If the system has no threads left.
    pub fn new(threads: usize) -> Self {
        let helpers = (threads > 1).then(|| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(threads - 1);
            let builder = builder.thread_name(|index| format!("kernel-{index}"));
            Arc::new(builder.build().expect("the system has threads"))
        });
        Self {
            helpers,
            shelves: Arc::default(),
        }
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        let helpers = self.helpers.as_ref();
        1 + helpers.map_or(0, |helpers| helpers.current_num_threads())
    }

    /// Memory for `len` numbers that may be anything, to be written.
    pub fn buffer<R: Real>(&self, len: usize) -> Buffer<R> {
        let (mut buffer, is_old) = R::shelf(&self.shelves).take(len);
        if cfg!(debug_assertions) && is_old {
            // Whoever reads what nobody wrote shall see it.
            buffer.fill(R::from_f64(f64::NAN));
        }
        buffer
    }

    /// Memory with the same numbers as `source`.
    pub fn copy<R: Real>(&self, source: &[R]) -> Buffer<R> {
        let (mut buffer, _) = R::shelf(&self.shelves).take(source.len());
        buffer.copy_from_slice(source);
        buffer
    }

    /// Memory for `len` zeros, to be added to.
    pub fn zeros<R: Real>(&self, len: usize) -> Buffer<R> {
        let (mut buffer, is_old) = R::shelf(&self.shelves).take(len);
        if is_old {
            buffer.fill(R::ZERO);
        }
        buffer
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
