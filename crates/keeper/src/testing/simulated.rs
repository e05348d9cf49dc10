//! A keeper of a simulated world: its table, its answers and how it ends saves, over a way, a clock and stores that the world has made.

use crate::Error;
use crate::Limits;
use crate::client::Client;
use crate::connection::answer_from;
use crate::door::{Door, Wire};
use crate::message::{About, Reply, Request};
use crate::persist::Ending;
use crate::table::{ClientId, Orphaned, Table};
use crate::wire::Received;
use cairn_checkpoint::Clock;
use cairn_checkpoint::keeper::Snapshot;
use cairn_store::Store;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What lies between a client and its keeper.
pub trait Way: Debug + Send + Sync {
    /// The keeper that runs now.
    fn keeper(&self) -> Option<Arc<Simulated>>;

    /// The client says something, by its name; whether that keeper hears it.
    fn says(&self, keeper: usize, what: &str) -> bool;

    /// That keeper answers; whether the client hears it.
    fn answers(&self, keeper: usize) -> bool;

    /// Whether the client's process runs.
    fn is_alive(&self) -> bool;

    /// Lets some time pass.
    fn wait(&self);

    /// What that keeper has heard of a snapshot and not refused.
    fn heard(&self, keeper: usize, snapshot: u64, heard: Heard<'_>);
}

/// What becomes of a snapshot while its writer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard<'a> {
    /// Every byte is there.
    Captured(&'a Snapshot),
    /// Its step is committed.
    Committed,
    /// Its writer does not want it.
    Abandoned,
}

/// A keeper.
#[derive(Debug)]
pub struct Simulated {
    process: usize,
    clock: Arc<dyn Clock>,
    /// Never held while another thread can run.
    desk: Mutex<Desk>,
}

#[derive(Debug)]
struct Desk {
    table: Table,
    lines: BTreeMap<ClientId, Arc<Line>>,
    next: ClientId,
}

/// A snapshot whose writer is gone, and that nobody has made safe.
#[derive(Debug)]
pub struct Left(Orphaned);

/// A connection, as both sides see it.
#[derive(Debug)]
struct Line {
    way: Arc<dyn Way>,
    is_closed: AtomicBool,
    /// The process lives, but has left.
    is_cut: AtomicBool,
}

/// A client's end of it.
#[derive(Debug)]
struct SimulatedWire {
    keeper: Arc<Simulated>,
    client: ClientId,
    line: Arc<Line>,
    begun: Mutex<BTreeMap<u64, Snapshot>>,
}

#[derive(Debug)]
struct SimulatedDoor(Arc<dyn Way>);

impl Simulated {
    /// A keeper that holds nothing, in a process with this number.
    pub fn new(process: usize, limits: Limits, clock: Arc<dyn Clock>) -> Arc<Self> {
        let desk = Desk {
            table: Table::new(limits, clock.clone()),
            lines: BTreeMap::new(),
            next: 0,
        };
        Arc::new(Self {
            process,
            clock,
            desk: Mutex::new(desk),
        })
    }

    /// A client that comes to whatever keeper is there by `way`.
    pub fn client(way: Arc<dyn Way>) -> Client {
        Client::through(PathBuf::from("simulated"), Arc::new(SimulatedDoor(way)))
    }

    /// The number of its process.
    pub fn process(&self) -> usize {
        self.process
    }

    /// Takes the leave of clients that are gone, of all of them if it stops. Returns what they captured and nobody has made safe.
    pub fn gone(&self, is_stopping: bool) -> Vec<Left> {
        let mut desk = self.desk();
        let Desk { table, lines, .. } = &mut *desk;
        let mut left = Vec::new();
        lines.retain(|client, line| {
            let is_over = is_stopping || line.is_over();
            if is_over && line.way.is_alive() && !is_stopping {
                line.is_cut.store(true, Ordering::SeqCst);
                table.cut(*client);
            }
            let is_cut = line.is_cut.load(Ordering::SeqCst);
            let stays = match is_stopping || !line.way.is_alive() {
                true => !is_over,
                false => !is_cut || table.has_pending(*client),
            };
            if !stays {
                line.is_closed.store(true, Ordering::SeqCst);
                left.extend(table.gone(*client).into_iter().map(Left));
            }
            stays
        });
        left
    }

    /// What could not be committed and is to be tried again now.
    pub fn due(&self) -> Vec<Left> {
        self.desk().table.due().into_iter().map(Left).collect()
    }

    /// Forgets what is safe, belongs to nobody, and has been so for `age`.
    pub fn forget(&self, age: Duration) {
        self.desk().table.forget(age);
    }

    /// Writes and commits what somebody left.
    ///
    /// # Errors
    /// In words: what stopped it.
    pub fn end(
        &self,
        left: &Left,
        store: Arc<dyn Store>,
        commit_timeout: Duration,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let ending = Ending {
            store: &|| Ok(store.clone()),
            clock: &self.clock,
            commit_timeout,
            is_stopping,
            sealed: &|part| self.desk().table.sealed(left.0.snapshot, part),
        };
        let result = ending.persist(&left.0);
        self.desk().table.settled(left.0.snapshot, result.clone());
        result.map_err(|failure| failure.reason)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether whoever asks for a run has to wait: somebody is gone and not known to be, or what they left cannot be read yet.
    fn is_unsettled(&self, run: &str) -> bool {
        let desk = self.desk();
        desk.lines.values().any(|line| line.is_over()) || desk.table.is_sealing(run)
    }
}

impl Left {
    /// Its number.
    pub fn snapshot(&self) -> u64 {
        self.0.snapshot
    }

    /// What it is of.
    pub fn about(&self) -> &Snapshot {
        &self.0.about
    }
}

impl Line {
    fn is_over(&self) -> bool {
        let is_closed = self.is_closed.load(Ordering::SeqCst);
        is_closed && !self.is_cut.load(Ordering::SeqCst) || !self.way.is_alive()
    }
}

impl Door for SimulatedDoor {
    fn connect(&self, _: Duration) -> Result<Box<dyn Wire>, Error> {
        let nobody = || Error::NoKeeper {
            path: "simulated".into(),
        };
        let keeper = self.0.keeper().ok_or_else(nobody)?;
        let line = Arc::new(Line {
            way: self.0.clone(),
            is_closed: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
        });
        let mut desk = keeper.desk();
        desk.next += 1;
        let client = desk.next;
        desk.lines.insert(client, line.clone());
        drop(desk);
        Ok(Box::new(SimulatedWire {
            keeper,
            client,
            line,
            begun: Mutex::default(),
        }))
    }
}

impl SimulatedWire {
    /// Does what is asked, and tells the world.
    fn answer(&self, request: &Request, body: &[u8]) -> Received<Reply> {
        let mut desk = self.keeper.desk();
        let answer = answer_from(
            &mut desk.table,
            self.client,
            request.clone(),
            body.to_vec(),
            0,
        );
        drop(desk);
        match answer {
            Ok((head, luggage)) => {
                self.tell(request, &head);
                Received {
                    head,
                    body: luggage.body.concat(),
                    file: luggage.file,
                }
            }
            Err(error) => Received {
                head: Reply::Refused {
                    reason: error.to_string(),
                },
                body: Vec::new(),
                file: None,
            },
        }
    }

    fn tell(&self, request: &Request, reply: &Reply) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if let (
            Request::Begin {
                about: About(about),
            },
            Reply::Room { snapshot, .. },
        ) = (request, reply)
        {
            begun.insert(*snapshot, about.clone());
        }
        let tell = |snapshot, heard| self.line.way.heard(self.keeper.process, snapshot, heard);
        match request {
            Request::Captured { snapshot } => {
                if let Some(about) = begun.get(snapshot) {
                    tell(*snapshot, Heard::Captured(about));
                }
            }
            Request::Committed { snapshot } => tell(*snapshot, Heard::Committed),
            Request::Abandon { snapshot } => tell(*snapshot, Heard::Abandoned),
            _ => {}
        }
    }

    fn broken(&self) -> Error {
        self.line.is_closed.store(true, Ordering::SeqCst);
        io::Error::from(io::ErrorKind::BrokenPipe).into()
    }
}

impl Wire for SimulatedWire {
    fn ask(&self, request: &Request, body: &[u8]) -> Result<Received<Reply>, Error> {
        let (way, keeper) = (&self.line.way, self.keeper.process);
        if !way.says(keeper, name_of(request)) || self.line.is_closed.load(Ordering::SeqCst) {
            return Err(self.broken());
        }
        if let Request::Held { run } = request {
            while self.keeper.is_unsettled(run) {
                way.wait();
                if !way.answers(keeper) {
                    return Err(self.broken());
                }
            }
        }
        let reply = self.answer(request, body);
        match way.answers(keeper) {
            true => Ok(reply),
            false => Err(self.broken()),
        }
    }
}

impl Drop for SimulatedWire {
    fn drop(&mut self) {
        self.line.is_closed.store(true, Ordering::SeqCst);
    }
}

/// What a request is called where a world tells what happens.
fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Hello { .. } => "hello",
        Request::Begin { .. } => "begin",
        Request::Captured { .. } => "captured",
        Request::Written { .. } => "written",
        Request::Committed { .. } => "committed",
        Request::Abandon { .. } => "abandon",
        Request::Held { .. } => "held",
        Request::Fetch { .. } => "fetch",
        Request::Status => "status",
    }
}
