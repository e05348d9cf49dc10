//! Ranks that send each other messages: every call is an exchange of them, whatever carries them.
//!
//! A [`Transport`] carries bytes from rank to rank, in order. What arrives goes to the rank's [`Mailbox`]; [`world`] makes a group of the two.
//! All else, such as reductions in the order of the ranks, calls that do not belong together, time-outs that name who is missing, and the end that reaches
//! everybody, is the same for every transport.
//!
//! In a call each rank sends one message to each other, with what the call is and what it has for the other, and waits for one from each.

mod group;
mod letter;
mod mailbox;

use crate::Communicator;
use group::Member;
pub use mailbox::Mailbox;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Carries messages from this rank to others.
pub trait Transport: Debug + Send + Sync {
    /// Which of the world this is.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Takes a message for the [`Mailbox::deliver`] of another rank, where it arrives behind all that were sent there before.
    ///
    /// Does not wait for the other. What cannot be delivered is dropped: the other has ended, or whoever waits for it will notice.
    fn send(&self, to: usize, message: Vec<u8>);
}

/// The group of all ranks; calls wait for others as long as `timeout`.
pub fn world(
    transport: Arc<dyn Transport>,
    mailbox: Arc<Mailbox>,
    timeout: Duration,
) -> Arc<dyn Communicator> {
    Arc::new(Member::world(transport, mailbox, timeout))
}
