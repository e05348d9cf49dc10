//! One client, as the keeper's thread for it sees it.

use crate::Error;
use crate::message::{About, Reply, Request, VERSION};
use crate::server::Shared;
use crate::table::{ClientId, Orphaned};
use crate::wire::{Received, receive, send};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A client's socket, and its process: children that it forks have the socket, too, and may outlive it.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    process: Option<OwnedFd>,
}

/// What a reply brings along.
#[derive(Default)]
struct Luggage {
    body: Vec<std::sync::Arc<[u8]>>,
    file: Option<OwnedFd>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream, process: Pid) -> Self {
        // A process of another namespace cannot be seen; its socket will have to do.
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty()).ok();
        Self { stream, process }
    }

    /// Whether the client is gone, though the thread that serves it may not have noticed.
    pub(crate) fn is_over(&self) -> bool {
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (hung_up, ended) = self.poll(PollFlags::RDHUP, Some(&none));
        hung_up || ended
    }

    /// Answers until the client leaves or dies. What it said before that is heard.
    ///
    /// # Errors
    /// If it says what makes no sense.
    pub(crate) fn serve(&self, client: ClientId, shared: &Shared) -> Result<(), Error> {
        let mut greeted = false;
        loop {
            let (readable, ended) = self.poll(PollFlags::IN, None);
            if !readable && ended {
                return Ok(());
            }
            let Some(Received { head, body, .. }) = receive::<Request>(&self.stream)? else {
                return Ok(());
            };
            if let Request::Hello { version } = head {
                greeted = version == VERSION;
                let welcome = Reply::Welcome { version: VERSION };
                send(&self.stream, &welcome, &[], None)?;
                continue;
            }
            if !greeted {
                return Err(Error::message("nobody said hello"));
            }
            let (reply, luggage) = answer(client, shared, head, body).unwrap_or_else(|error| {
                let reason = error.to_string();
                (Reply::Refused { reason }, Luggage::default())
            });
            let body: Vec<&[u8]> = luggage.body.iter().map(|piece| &piece[..]).collect();
            let file = luggage.file.as_ref().map(AsFd::as_fd);
            send(&self.stream, &reply, &body, file)?;
        }
    }

    /// Waits for `event` on the socket, or the end of the process; says which there are.
    fn poll(&self, event: PollFlags, timeout: Option<&Timespec>) -> (bool, bool) {
        let stream = self.stream.as_fd();
        let process: Option<BorrowedFd<'_>> = self.process.as_ref().map(AsFd::as_fd);
        let mut polled = vec![PollFd::from_borrowed_fd(stream, event)];
        polled.extend(process.map(|process| PollFd::from_borrowed_fd(process, PollFlags::IN)));
        // What cannot be polled will not be read either, and says why.
        while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut polled, timeout) {}
        let any = |index: usize| {
            let polled: Option<&PollFd<'_>> = polled.get(index);
            polled.is_some_and(|polled| !polled.revents().is_empty())
        };
        (any(0), any(1))
    }
}

fn answer(
    client: ClientId,
    shared: &Shared,
    request: Request,
    body: Vec<u8>,
) -> Result<(Reply, Luggage), Error> {
    match request {
        Request::Hello { .. } => {}
        Request::Begin {
            about: About(about),
        } => {
            cairn_store::open(&about.run).map_err(|error| Error::refused(error.to_string()))?;
            let room = shared.change(|table| table.begin(client, about))?;
            let file = room
                .memory
                .as_ref()
                .map(|memory| memory.as_fd().try_clone_to_owned());
            let reply = Reply::Room {
                snapshot: room.snapshot,
                image: room.image,
                images: room.images,
            };
            let luggage = Luggage {
                file: file.transpose()?,
                ..Luggage::default()
            };
            return Ok((reply, luggage));
        }
        Request::Captured { snapshot } => {
            shared.change(|table| table.captured(client, snapshot, body))?;
        }
        Request::Written { snapshot } => {
            shared.change(|table| table.written(client, snapshot, body))?;
        }
        Request::Committed { snapshot } => {
            shared.change(|table| table.committed(client, snapshot))?;
        }
        Request::Abandon { snapshot } => {
            shared.change(|table| table.abandon(client, snapshot))?;
        }
        Request::Held { run } => {
            shared.settle(client, &run);
            let snapshots = shared.change(|table| table.held(client, &run));
            return Ok((Reply::Held { snapshots }, Luggage::default()));
        }
        Request::Fetch { snapshot } => {
            let held = shared.lock().table.fetch(client, snapshot)?;
            return fetched(held);
        }
        Request::Status => {
            let others = shared.clients().saturating_sub(1);
            let status = shared.lock().table.status(others);
            return Ok((Reply::Status { status }, Luggage::default()));
        }
    }
    Ok((Reply::Done, Luggage::default()))
}

/// A snapshot for a reader, who gets no way to change it.
fn fetched(held: Orphaned) -> Result<(Reply, Luggage), Error> {
    let file = held.memory.map(|memory| memory.read_only()).transpose()?;
    let part = held.part.unwrap_or_default();
    let reply = Reply::Fetched {
        part_len: part.len(),
    };
    let body = vec![part, held.draft];
    Ok((reply, Luggage { body, file }))
}
