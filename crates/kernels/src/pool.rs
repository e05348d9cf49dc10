//! The threads of one rank.

use std::fmt;
use std::sync::Arc;

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
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({})", self.threads())
    }
}
