//! Calls that run while their caller goes on.

use crate::{Communicator, Error};
use cairn_tensor::{DType, ReduceOp};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// A thread that makes the calls of one rank in a group of their own, in order.
///
/// Every rank gives it the same calls in the same order, as with any group, but they do not mix with those that the ranks make
/// themselves.
///
/// Whoever drops it before all its calls are through leaves others waiting, so that ends the group.
#[derive(Debug)]
pub struct Background {
    work: Option<Sender<Work>>,
    group: Arc<dyn Communicator>,
    thread: Option<JoinHandle<()>>,
    /// Calls that are not through.
    open: Arc<AtomicUsize>,
}

type Work = Box<dyn FnOnce(&dyn Communicator) + Send>;

/// The outcome of a call that runs in the background.
#[derive(Debug)]
#[must_use = "the call may fail"]
pub struct Pending<R>(Receiver<Result<R, Error>>);

impl Background {
    /// A background of `group`.
    ///
    /// # Collective
    /// # Errors
    /// If somebody does not call.
    pub fn new(group: &dyn Communicator) -> Result<Self, Error> {
        let own = group.split(0, 0)?;
        let (work, todo) = channel::<Work>();
        let member = own.clone();
        let thread = thread::spawn(move || {
            for work in todo {
                work(member.as_ref());
            }
        });
        Ok(Self {
            work: Some(work),
            group: own,
            thread: Some(thread),
            open: Arc::default(),
        })
    }

    /// Makes a call, or several, behind those that were given before.
    pub fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Communicator) -> Result<R, Error> + Send + 'static,
    ) -> Pending<R> {
        let (done, outcome) = channel();
        let open = self.open.clone();
        open.fetch_add(1, Ordering::Relaxed);
        let work: Work = Box::new(move |group| {
            let answer = call(group);
            if let Err(error) = &answer {
                group.end(&format!("a call in the background failed: {error}"));
            }
            open.fetch_sub(1, Ordering::Relaxed);
            // Nobody may wait for it.
            let _ = done.send(answer);
        });
        // Without a thread nobody answers, which is what waiting finds.
        let _ = self.work.as_ref().map(|sender| sender.send(work));
        Pending(outcome)
    }

    /// As [`Communicator::all_reduce`], of a buffer that comes back combined.
    pub fn all_reduce(&self, dtype: DType, op: ReduceOp, mut bytes: Vec<u8>) -> Pending<Vec<u8>> {
        self.call(move |group| {
            group.all_reduce(dtype, op, &mut bytes)?;
            Ok(bytes)
        })
    }

    /// As [`Communicator::reduce_scatter`]; this rank's part comes back.
    pub fn reduce_scatter(
        &self,
        dtype: DType,
        op: ReduceOp,
        bytes: Vec<u8>,
        lens: Vec<usize>,
    ) -> Pending<Vec<u8>> {
        self.call(move |group| {
            let mut out = vec![0; lens.get(group.rank()).copied().unwrap_or(0)];
            group.reduce_scatter(dtype, op, &bytes, &lens, &mut out)?;
            Ok(out)
        })
    }

    /// As [`Communicator::all_gather`]; everybody's parts come back.
    pub fn all_gather(&self, bytes: Vec<u8>, lens: Vec<usize>) -> Pending<Vec<u8>> {
        self.call(move |group| {
            let mut out = vec![0; lens.iter().sum()];
            group.all_gather(&bytes, &lens, &mut out)?;
            Ok(out)
        })
    }
}

impl<R> Pending<R> {
    /// Waits for the call.
    ///
    /// # Errors
    /// Its error.
    pub fn wait(self) -> Result<R, Error> {
        self.0.recv().unwrap_or_else(|_| {
            Err(Error::Ended {
                reason: "the background has ended".into(),
            })
        })
    }

    /// Whether it has come back; if so, how.
    pub fn poll(&self) -> Option<Result<R, Error>> {
        self.0.try_recv().ok()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.work.take());
        if self.open.load(Ordering::Relaxed) > 0 {
            // The others may wait for this rank, and never make the calls that are still to be made here.
            let rank = self.group.world_ranks()[self.group.rank()];
            let reason = format!("rank {rank} left before its calls were through");
            self.group.end(&reason);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
