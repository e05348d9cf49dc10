//! Messages that arrive the moment they are sent: the plainest transport.

use crate::Communicator;
use crate::messages::{Mailbox, Transport, world};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
struct Wire {
    rank: usize,
    mailboxes: Arc<Vec<Arc<Mailbox>>>,
}

impl Transport for Wire {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.mailboxes.len()
    }

    fn send(&self, to: usize, message: Vec<u8>) {
        self.mailboxes[to].deliver(self.rank, message);
    }
}

/// A world of ranks that send each other messages inside this process; the caller gives each a thread.
pub fn wired(size: usize, timeout: Duration) -> Vec<Arc<dyn Communicator>> {
    let mailboxes: Arc<Vec<Arc<Mailbox>>> = Arc::new((0..size).map(|_| Arc::default()).collect());
    let member = |rank: usize| {
        let mailboxes = mailboxes.clone();
        let mailbox = mailboxes[rank].clone();
        world(Arc::new(Wire { rank, mailboxes }), mailbox, timeout)
    };
    (0..size).map(member).collect()
}
