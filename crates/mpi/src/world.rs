//! All ranks that MPI started.

use crate::Error;
use crate::server::{self, Order};
use cairn_collectives::Communicator;
use cairn_collectives::messages::{self, Mailbox, Transport};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What can be chosen for ranks that MPI starts.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a call waits for the others.
    pub timeout: Duration,
    /// How long a rank that is done waits for the others before it ends them.
    pub patience: Duration,
    /// The most bytes that are given to MPI at once; it counts them with 31 bits.
    pub message_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(600),
            patience: Duration::from_secs(600),
            message_bytes: 1 << 30,
        }
    }
}

/// All ranks that MPI started, for as long as it lives.
///
/// Dropping it waits until all others drop theirs.
#[derive(Debug)]
pub struct World {
    group: Arc<dyn Communicator>,
    mailbox: Arc<Mailbox>,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl World {
    /// Starts MPI in this process.
    ///
    /// # Collective
    /// # Errors
    /// If it was started before, or allows no threads.
    pub fn start(options: Options) -> Result<Self, Error> {
        let (orders, given) = channel();
        let (answer, started) = channel();
        let mailbox: Arc<Mailbox> = Arc::default();
        let (delivered, timeout) = (mailbox.clone(), options.timeout);
        let thread = thread::Builder::new()
            .name("mpi".into())
            .spawn(move || server::serve(&options, &given, &delivered, &answer))
            .map_err(Error::Spawn)?;
        let (rank, size) = started.recv().map_err(|_| Error::Started)??;
        let carrier = Arc::new(Carrier {
            rank,
            size,
            orders: orders.clone(),
        });
        Ok(Self {
            group: messages::world(carrier, mailbox.clone(), timeout),
            mailbox,
            orders,
            thread: Some(thread),
        })
    }

    /// The group of all ranks.
    pub fn group(&self) -> &Arc<dyn Communicator> {
        &self.group
    }

    /// Does this rank's part; if it fails, calls of all others end with its reason.
    ///
    /// # Errors
    /// As `body`.
    ///
    /// # Panics
    /// As `body`.
    pub fn run<R, E: Display>(
        &self,
        body: impl FnOnce(&Arc<dyn Communicator>) -> Result<R, E>,
    ) -> Result<R, E> {
        let rank = self.group.rank();
        match catch_unwind(AssertUnwindSafe(|| body(&self.group))) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.group.end(&format!("rank {rank} failed: {error}"));
                Err(error)
            }
            Err(panic) => {
                self.group.end(&format!("rank {rank} panicked"));
                resume_unwind(panic)
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.mailbox.close("this rank has left the world");
        // A thread that is gone needs no orders.
        let _ = self.orders.send(Order::Leave);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Gives messages to the thread that uses MPI.
#[derive(Debug)]
struct Carrier {
    rank: usize,
    size: usize,
    orders: Sender<Order>,
}

impl Transport for Carrier {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn send(&self, to: usize, message: Vec<u8>) {
        // Once the world is left nobody is sent anything.
        let _ = self.orders.send(Order::Send { to, message });
    }
}
