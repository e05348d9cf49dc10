//! A door for fuzzing: a keeper without sockets and threads, which hears bytes.

#[cfg(feature = "simulate")]
mod simulated;

#[cfg(feature = "simulate")]
pub use simulated::{Heard, Left, Simulated, Way};

use crate::Limits;
use crate::message::{About, PREFIX_BYTES, Prefix, Reply, Request, decode, encode};
use crate::table::{Failure, Prospect, Table};
use cairn_checkpoint::machine_clock;
use std::time::Duration;

/// What a keeper holds, and clients that say anything to it.
#[derive(Debug)]
pub struct Desk {
    table: Table,
    /// The snapshots of clients that are gone, which somebody would write now.
    orphans: Vec<u64>,
}

impl Desk {
    /// A keeper that holds nothing.
    pub fn new(limits: Limits) -> Self {
        Self {
            table: Table::new(limits, machine_clock()),
            orphans: Vec::new(),
        }
    }

    /// Hears the message that `bytes` begin with, and returns its answer and what follows; `None` if the connection would end here.
    ///
    /// # Panics
    /// If a message does not come back as it was when it is written again.
    pub fn hear<'a>(&mut self, client: u64, bytes: &'a [u8]) -> Option<(Vec<u8>, &'a [u8])> {
        let (prefix, rest) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
        let prefix = Prefix::decode(*prefix).ok()?;
        let (head, rest) = rest.split_at_checked(prefix.head_len)?;
        let (body, rest) = rest.split_at_checked(prefix.body_len)?;
        self.say(client, head, body).map(|reply| (reply, rest))
    }

    /// Hears a head and a body, whose lengths need not be told.
    ///
    /// # Panics
    /// As [`Self::hear`].
    pub fn say(&mut self, client: u64, head: &[u8], body: &[u8]) -> Option<Vec<u8>> {
        // A keeper that is somebody else answers anything, too.
        if let Ok(reply) = decode::<Reply>(head) {
            come_back(&reply);
        }
        let request: Request = decode(head).ok()?;
        come_back(&request);
        let reply = self.answer(client, request, body.to_vec());
        let reply = reply.unwrap_or_else(|error| Reply::Refused {
            reason: error.to_string(),
        });
        Some(come_back(&reply))
    }

    fn answer(
        &mut self,
        client: u64,
        request: Request,
        body: Vec<u8>,
    ) -> Result<Reply, crate::Error> {
        let table = &mut self.table;
        match request {
            Request::Hello { version } => return Ok(Reply::Welcome { version }),
            Request::Begin {
                about: About(about),
            } => {
                let room = table.begin(client, about)?;
                return Ok(Reply::Room {
                    snapshot: room.snapshot,
                    image: room.image,
                    images: room.images,
                });
            }
            Request::Captured { snapshot } => table.captured(client, snapshot, body)?,
            Request::Written { snapshot } => table.written(client, snapshot, body)?,
            Request::Committed { snapshot } => table.committed(client, snapshot)?,
            Request::Abandon { snapshot } => table.abandon(client, snapshot)?,
            Request::Held { run } => {
                let snapshots = table.held(client, &run);
                return Ok(Reply::Held { snapshots });
            }
            Request::Fetch { snapshot } => {
                let part = table.fetch(client, snapshot)?.part.unwrap_or_default();
                let part_len = part.len();
                return Ok(Reply::Fetched { part_len });
            }
            Request::Status => {
                let mut status = table.status(1);
                // Time passes.
                let snapshots = status.snapshots.iter_mut();
                snapshots.for_each(|held| held.seconds = 0.0);
                return Ok(Reply::Status { status });
            }
        }
        Ok(Reply::Done)
    }

    /// A client dies.
    pub fn leave(&mut self, client: u64) {
        let orphans = self.table.gone(client);
        self.orphans
            .extend(orphans.iter().map(|orphan| orphan.snapshot));
    }

    /// The oldest orphan is written, or cannot be.
    pub fn settle(&mut self, written: bool) {
        if self.orphans.is_empty() {
            // What is stuck is tried again.
            self.table.hurry(None);
            let due = self.table.due();
            self.orphans.extend(due.iter().map(|left| left.snapshot));
        }
        if self.orphans.is_empty() {
            return;
        }
        let snapshot = self.orphans.remove(0);
        self.table.sealed(snapshot, b"part".to_vec());
        let result = match written {
            true => Ok(()),
            false => Err(Failure {
                reason: "it could not be written".into(),
                prospect: Prospect::Open,
            }),
        };
        self.table.settled(snapshot, result);
    }

    /// Whether somebody has still to be written.
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Forgets everything that is safe and belongs to nobody.
    pub fn forget(&mut self) {
        self.table.forget(Duration::ZERO);
    }

    /// The memory that is held.
    pub fn used_bytes(&self) -> u64 {
        self.table.used_bytes()
    }
}

/// Writes a message and reads it again; returns its bytes.
fn come_back<T>(message: &T) -> Vec<u8>
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    // What is over the limits is not sent.
    let Ok(bytes) = encode(message, 0) else {
        return Vec::new();
    };
    let again: T = decode(&bytes[PREFIX_BYTES..]).expect("what we write, we read");
    assert_eq!(&again, message);
    bytes
}
