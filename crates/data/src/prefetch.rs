//! Things that are made before they are needed.

use std::fmt;
use std::panic;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// What an iterator gives, made ahead on a thread, in its order: batches that are read before they are needed.
///
/// Dropping it stops the thread after the item it makes.
///
/// ```
/// use cairn_data::Prefetch;
/// let mut squares = Prefetch::new((0_u64..).map(|number| number * number), 2);
/// assert_eq!([squares.next(), squares.next()], [Some(0), Some(1)]);
/// ```
pub struct Prefetch<I: Iterator> {
    items: Option<Receiver<I::Item>>,
    thread: Option<JoinHandle<I>>,
    /// What items came from, once the thread is done.
    rest: Option<I>,
}

impl<I> Prefetch<I>
where
    I: Iterator + Send + 'static,
    I::Item: Send + 'static,
{
    /// Makes what `items` gives, of which at most `depth` wait to be taken.
    ///
    /// # Panics
    /// If the system has no threads left.
    pub fn new(mut items: I, depth: usize) -> Self {
        let (sender, receiver) = sync_channel(depth);
        let make = move || {
            for item in items.by_ref() {
                // Nobody takes any more once the receiver is gone.
                if sender.send(item).is_err() {
                    break;
                }
            }
            items
        };
        let thread = thread::Builder::new().name("data".into()).spawn(make);
        Self {
            items: Some(receiver),
            thread: Some(thread.expect("the system has threads")),
            rest: None,
        }
    }

    /// Stops, and gives back what items come from; those that were made and not taken are lost.
    ///
    /// # Panics
    /// If making one panicked.
    pub fn into_inner(mut self) -> I {
        self.items = None;
        self.join();
        let rest = self.rest.take();
        rest.expect("a thread that is done gives it back")
    }
}

impl<I: Iterator> Prefetch<I> {
    /// Waits for the thread; if it died, so does whoever relies on it.
    fn join(&mut self) {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(rest)) => self.rest = Some(rest),
            Some(Err(reason)) => panic::resume_unwind(reason),
            None => {}
        }
    }
}

impl<I: Iterator> Iterator for Prefetch<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.items.as_ref()?.recv().ok();
        if item.is_none() {
            self.join();
        }
        item
    }
}

impl<I: Iterator> Drop for Prefetch<I> {
    fn drop(&mut self) {
        self.items = None;
        if let Some(thread) = self.thread.take() {
            // A thread that died has nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl<I: Iterator> fmt::Debug for Prefetch<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prefetch")
    }
}
