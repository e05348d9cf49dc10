//! Batches that are read before they are needed.

use crate::{Error, Loader, Sample};
use std::ops::Range;
use std::panic;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// Batches that a thread reads ahead, in the order of their positions; the first error is the last item.
///
/// Dropping it stops the thread after the batch it reads.
#[derive(Debug)]
pub struct Prefetch {
    batches: Option<Receiver<Result<Vec<Sample>, Error>>>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// Reads the batches at `positions`, of which at most `depth` wait to be taken.
    ///
    /// # Panics
    /// If the system has no threads left.
    pub fn new<P>(loader: Arc<Loader>, positions: P, depth: usize) -> Self
    where
        P: IntoIterator<Item = Range<u64>> + Send + 'static,
    {
        let (sender, batches) = sync_channel(depth);
        let read = move || {
            for range in positions {
                let batch = loader.batch(range);
                let failed = batch.is_err();
                // Nobody takes any more once the receiver is gone.
                if sender.send(batch).is_err() || failed {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("data".into()).spawn(read);
        Self {
            batches: Some(batches),
            thread: Some(thread.expect("the system has threads")),
        }
    }
}

impl Iterator for Prefetch {
    type Item = Result<Vec<Sample>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(batch) = self.batches.as_ref()?.recv() {
            return Some(batch);
        }
        // The thread is done; if it died, so does whoever relies on it.
        if let Some(Err(reason)) = self.thread.take().map(JoinHandle::join) {
            panic::resume_unwind(reason);
        }
        None
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A thread that died has nothing left to stop.
            let _ = thread.join();
        }
    }
}
