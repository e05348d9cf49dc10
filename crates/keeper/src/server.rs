//! The keeper: listens, hands out memory, and ends the saves of those who die.

use crate::Error;
use crate::connection::Connection;
use crate::persist::Ending;
use crate::socket;
use crate::status::HeldStatus;
use crate::table::{ClientId, Failure, Limits, Orphaned, Prospect, Table};
use cairn_checkpoint::{Clock, machine_clock};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The most connections at a time.
const MAX_CLIENTS: usize = 1024;
/// A client that stops in the middle of a message, or does not take its answer, is dropped after this.
const STALLED: Duration = Duration::from_secs(60);
/// How often the keeper looks whether it should stop, forget something, or try something again.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// What can be chosen for a keeper.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// How much memory it takes.
    pub limits: Limits,
    /// How long a snapshot stays that is safe and belongs to nobody.
    pub forget_after: Duration,
    /// How long it waits for the other writers of a step that it ends, before it lets it rest and looks now and then.
    pub commit_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            forget_after: Duration::from_secs(3600),
            commit_timeout: Duration::from_secs(600),
        }
    }
}

/// A keeper that listens.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    listener: UnixListener,
    shared: Arc<Shared>,
}

/// What the threads of a keeper share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) table: Table,
    connections: BTreeMap<ClientId, Arc<Connection>>,
    /// Clients that wait for what others left.
    asking: BTreeSet<ClientId>,
    next: ClientId,
    /// Orphans that somebody is writing.
    persisting: usize,
    /// What the keeper's user should know and has not been told.
    warnings: Vec<String>,
}

impl Server {
    /// Listens at `path`. Setting `stop` ends [`Server::run`].
    ///
    /// # Errors
    /// [`Error::Taken`] if a keeper is there already, [`Error::Folder`] if others may enter its folder.
    pub fn bind(
        path: impl Into<PathBuf>,
        options: ServerOptions,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let path = path.into();
        let listener = socket::listen(&path)?;
        listener.set_nonblocking(true)?;
        let clock = machine_clock();
        let table = Table::new(options.limits, clock.clone());
        let state = State {
            table,
            connections: BTreeMap::new(),
            asking: BTreeSet::new(),
            next: 0,
            persisting: 0,
            warnings: Vec::new(),
        };
        let shared = Arc::new(Shared {
            options,
            clock,
            state: Mutex::new(state),
            changed: Condvar::new(),
            stop,
        });
        Ok(Self {
            path,
            listener,
            shared,
        })
    }

    /// Serves until it is told to stop; what writers that died had captured is written by then, or was tried once more. Returns what
    /// could not be committed and goes with the keeper. `warn` hears of what fails on the way.
    ///
    /// # Errors
    /// If nobody can be heard any more.
    pub fn run(self, warn: impl Fn(&str)) -> Result<Vec<HeldStatus>, Error> {
        let tell = |shared: &Shared| {
            let warnings = std::mem::take(&mut shared.lock().warnings);
            warnings.iter().for_each(|warning| warn(warning));
        };
        while !self.shared.is_stopping() {
            let mut listening = [PollFd::new(&self.listener, PollFlags::IN)];
            match rustix::event::poll(&mut listening, Some(&TICK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => self.accept(),
                Err(error) => return Err(std::io::Error::from(error).into()),
            }
            let age = self.shared.options.forget_after;
            self.shared.lock().table.forget(age);
            self.shared.retry();
            tell(&self.shared);
        }
        // Nobody comes in any more; who is connected notices when this process ends.
        let removed = socket::remove(&self.path);
        let is_idle = |state: &State| state.persisting == 0;
        drop(self.shared.wait(self.shared.lock(), is_idle));
        self.shared.lock().table.hurry(None);
        self.shared.retry();
        let lost = self
            .shared
            .wait(self.shared.lock(), is_idle)
            .table
            .last_copies();
        tell(&self.shared);
        removed.map(|()| lost).map_err(Error::from)
    }

    /// Lets one client in, if it is the keeper's own user.
    fn accept(&self) {
        let accepted = self.listener.accept();
        let admitted = accepted.map_err(Error::from).and_then(|(stream, _)| {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(STALLED))?;
            stream.set_write_timeout(Some(STALLED))?;
            self.admit(stream)
        });
        if let Err(error) = admitted {
            tracing::warn!(%error, "a connection was refused");
        }
    }

    fn admit(&self, stream: UnixStream) -> Result<(), Error> {
        let process = socket::check_user(&stream, socket::own_user())?;
        let connection = Arc::new(Connection::new(stream, process));
        let mut state = self.shared.lock();
        if state.connections.len() >= MAX_CLIENTS {
            return Err(Error::refused("there are too many connections"));
        }
        state.next += 1;
        let client = state.next;
        state.connections.insert(client, connection.clone());
        drop(state);
        let shared = self.shared.clone();
        thread::spawn(move || {
            if let Err(error) = connection.serve(client, &shared) {
                tracing::warn!(client, %error, "a client was dropped");
            }
            connection.outlive(client, &shared);
            shared.leave(client);
        });
        Ok(())
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Changes the table, and wakes whoever waits for that.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let result = change(&mut self.lock().table);
        self.changed.notify_all();
        result
    }

    /// Waits until nothing more is to be learned of `run`: whoever died is known to have, and what they left can be read.
    pub(crate) fn settle(&self, client: ClientId, run: &str) {
        let mut waiting = self.lock();
        // Who waits here has captured nothing, and may die as well.
        waiting.asking.insert(client);
        let mut state = self.wait(waiting, |state| {
            let others = state.connections.iter();
            let mut others = others.filter(|(client, _)| !state.asking.contains(client));
            !others.any(|(_, other)| other.is_over()) && !state.table.is_sealing(run)
        });
        state.asking.remove(&client);
        // A launch that begins is a sign that whatever was away is back.
        state.table.hurry(Some(run));
    }

    /// How many are connected.
    pub(crate) fn clients(&self) -> usize {
        self.lock().connections.len()
    }

    /// Takes a client's leave, and ends its saves in its place.
    fn leave(self: &Arc<Self>, client: ClientId) {
        let mut state = self.lock();
        state.connections.remove(&client);
        let orphans = state.table.gone(client);
        self.adopt_all(state, orphans);
    }

    /// Tries what is stuck again, where it is time.
    fn retry(self: &Arc<Self>) {
        let mut state = self.lock();
        let due = state.table.due();
        self.adopt_all(state, due);
    }

    fn adopt_all(self: &Arc<Self>, mut state: MutexGuard<'_, State>, orphans: Vec<Orphaned>) {
        state.persisting += orphans.len();
        drop(state);
        self.changed.notify_all();
        for orphan in orphans {
            let shared = self.clone();
            thread::spawn(move || shared.adopt(&orphan));
        }
    }

    fn adopt(&self, orphan: &Orphaned) {
        let about = &orphan.about;
        tracing::info!(
            run = about.run,
            step = about.step,
            writer = about.writer,
            "a writer died: its capture is being written"
        );
        let result = catch_unwind(AssertUnwindSafe(|| self.persist(orphan)));
        let result = result.unwrap_or_else(|_| {
            Err(Failure {
                reason: "its thread panicked".into(),
                prospect: Prospect::Open,
            })
        });
        let mut state = self.lock();
        match (&result, state.table.is_stuck(orphan.snapshot)) {
            (Err(failure), false) => state.warnings.push(warning(orphan, failure)),
            (Ok(()), true) => {
                let (step, run) = (about.step, &about.run);
                let text = format!("step {step} of `{run}`, which could not be committed, is now");
                state.warnings.push(text);
            }
            _ => {}
        }
        state.table.settled(orphan.snapshot, result);
        state.persisting -= 1;
        drop(state);
        self.changed.notify_all();
    }

    fn persist(&self, orphan: &Orphaned) -> Result<(), Failure> {
        let ending = Ending {
            store: &|| cairn_store::open(&orphan.about.run),
            clock: &self.clock,
            commit_timeout: self.options.commit_timeout,
            is_stopping: &|| self.is_stopping(),
            sealed: &|part| self.change(|table| table.sealed(orphan.snapshot, part)),
        };
        ending.persist(orphan)
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while !until(&state) {
            // A connection that ends does not always wake anybody.
            let waited = self.changed.wait_timeout(state, Duration::from_millis(100));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

/// What the keeper's user should know of a capture that could not be committed.
fn warning(orphan: &Orphaned, failure: &Failure) -> String {
    let about = &orphan.about;
    let (step, writer, run, reason) = (about.step, about.writer, &about.run, &failure.reason);
    tracing::warn!(
        run,
        step,
        writer,
        reason,
        "a capture could not be committed"
    );
    let next = match failure.prospect {
        Prospect::Open => "it stays in memory and is tried again",
        Prospect::GivenUp => "a writer of the step gave it up",
        Prospect::Taken => "the step is committed otherwise, and this is not needed",
    };
    format!(
        "step {step} of `{run}`, captured by writer {writer} before its trainer died, could not be committed: {reason}; {next}"
    )
}
