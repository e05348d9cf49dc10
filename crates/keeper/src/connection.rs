//! One client, as the keeper's thread for it sees it.

use crate::Error;
use crate::message::{About, Reply, Request, VERSION};
use crate::server::Shared;
use crate::table::{ClientId, Orphaned, Room, Table};
use crate::wire::{Received, receive, send};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// No time at all.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
/// How often is looked whether a client that has left has saves to end.
const TICK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A client's socket, and its process: children that it forks have the socket, too, and may outlive it.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    process: Option<OwnedFd>,
    /// The process lives, but has left.
    is_cut: AtomicBool,
}

/// What a reply brings along.
#[derive(Default)]
pub(crate) struct Luggage {
    pub(crate) body: Vec<std::sync::Arc<[u8]>>,
    pub(crate) file: Option<OwnedFd>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream, process: Pid) -> Self {
        // A process of another namespace cannot be seen; its socket will have to do.
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty()).ok();
        Self {
            stream,
            process,
            is_cut: AtomicBool::new(false),
        }
    }

    /// Whether the client is gone, though the thread that serves it may not have noticed.
    pub(crate) fn is_over(&self) -> bool {
        let (hung_up, ended) = self.poll(PollFlags::RDHUP, Some(&NOW));
        hung_up && !self.is_cut.load(Ordering::SeqCst) || ended
    }

    /// Stays for as long as a client that has left lives and ends its saves itself: what it writes, nobody else may write.
    pub(crate) fn outlive(&self, client: ClientId, shared: &Shared) {
        if self.has_ended(&NOW) {
            return;
        }
        self.is_cut.store(true, Ordering::SeqCst);
        shared.change(|table| table.cut(client));
        while shared.lock().table.has_pending(client) && !self.has_ended(&TICK) {}
    }

    /// Waits so long at the most for the end of the process.
    fn has_ended(&self, timeout: &Timespec) -> bool {
        let process = self.process.as_ref().map(AsFd::as_fd);
        let Some(process) = process else {
            return true;
        };
        let mut polled = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
        let ended = rustix::event::poll(&mut polled, Some(timeout));
        !matches!(ended, Ok(0) | Err(rustix::io::Errno::INTR))
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

/// Answers, with what only the keeper as a whole knows.
fn answer(
    client: ClientId,
    shared: &Shared,
    request: Request,
    body: Vec<u8>,
) -> Result<(Reply, Luggage), Error> {
    match &request {
        Request::Begin {
            about: About(about),
        } => {
            cairn_store::open(&about.run).map_err(|error| Error::refused(error.to_string()))?;
        }
        Request::Held { run } => shared.settle(client, run),
        _ => {}
    }
    let others = shared.clients().saturating_sub(1);
    shared.change(|table| answer_from(table, client, request, body, others))
}

/// Answers from the table, with so many others connected.
pub(crate) fn answer_from(
    table: &mut Table,
    client: ClientId,
    request: Request,
    body: Vec<u8>,
    others: usize,
) -> Result<(Reply, Luggage), Error> {
    match request {
        Request::Hello { .. } => {}
        Request::Begin {
            about: About(about),
        } => return begun(table.begin(client, about)?),
        Request::Captured { snapshot } => table.captured(client, snapshot, body)?,
        Request::Written { snapshot } => table.written(client, snapshot, body)?,
        Request::Committed { snapshot } => table.committed(client, snapshot)?,
        Request::Abandon { snapshot } => table.abandon(client, snapshot)?,
        Request::Held { run } => {
            let snapshots = table.held(client, &run);
            return Ok((Reply::Held { snapshots }, Luggage::default()));
        }
        Request::Fetch { snapshot } => return fetched(table.fetch(client, snapshot)?),
        Request::Status => {
            let status = table.status(others);
            return Ok((Reply::Status { status }, Luggage::default()));
        }
    }
    Ok((Reply::Done, Luggage::default()))
}

/// Room for a snapshot, and the memory if the client lacks it.
fn begun(room: Room) -> Result<(Reply, Luggage), Error> {
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
    Ok((reply, luggage))
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
