//! A trainer's side of a keeper.

mod keeping;

use crate::Error;
use crate::door::{Door, Wire};
use crate::kept::KeptStore;
use crate::lease::Lease;
use crate::message::{About, Reply, Request, VERSION};
use crate::socket;
use crate::sync::{Mutex, MutexGuard};
use crate::wire::Received;
use cairn_checkpoint::keeper::{Keeper, Keeping, Snapshot};
use cairn_device::{Device, Mapping, SharedMemory, SlabOptions};
use cairn_store::Store;
use keeping::{Image, Opened};
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long a keeper may take for an answer before the trainer goes on without it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Threads that find pages for memory that is about to be pinned.
const PREFAULT_THREADS: usize = 8;

/// A trainer's way to its keeper.
///
/// It connects when it is first needed. A keeper that is not there, refuses or dies costs one warning: saves then take memory of their
/// own, and each one looks whether the keeper is back.
#[derive(Debug)]
pub struct Client(Arc<Link>);

/// The connection, and the memory that came through it.
#[derive(Debug)]
pub(crate) struct Link {
    socket: PathBuf,
    door: Arc<dyn Door>,
    line: Mutex<Option<Line>>,
    /// How many connections there were.
    lines: AtomicU64,
    warned: AtomicBool,
}

#[derive(Debug)]
struct Line {
    wire: Box<dyn Wire>,
    images: HashMap<u64, Mapping>,
    /// Which connection this is: numbers of snapshots mean something on the one they came through.
    number: u64,
}

impl Client {
    /// A client of the keeper at `socket`, which need not be there yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        let socket = socket.into();
        let door = Arc::new(socket.clone());
        Self::through(socket, door)
    }

    /// A client that comes to the keeper through `door`; `socket` is what messages call it.
    pub(crate) fn through(socket: PathBuf, door: Arc<dyn Door>) -> Self {
        Self(Arc::new(Link {
            socket,
            door,
            line: Mutex::default(),
            lines: AtomicU64::new(0),
            warned: AtomicBool::new(false),
        }))
    }

    /// The keeper that `CAIRN_KEEPER` names, or the one that listens where keepers do; `None` if there is neither.
    pub fn find() -> Option<Self> {
        let path = socket::default_socket();
        let named = std::env::var_os(socket::KEEPER_VARIABLE).is_some_and(|name| !name.is_empty());
        (named || socket::connect(&path).is_ok()).then(|| Self::new(path))
    }

    /// The keeper's socket.
    pub fn socket(&self) -> &Path {
        &self.0.socket
    }
}

impl Keeper for Client {
    fn begin(&self, snapshot: &Snapshot, pin: Option<Arc<dyn Device>>) -> Option<Box<dyn Keeping>> {
        match self.0.begin(snapshot, pin) {
            Ok(image) => {
                self.0.warned.store(false, Ordering::Relaxed);
                Some(Box::new(image))
            }
            Err(error) => {
                self.0.warn(&error);
                None
            }
        }
    }

    fn over(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        match Lease::take(self.0.door.as_ref(), &store.url()) {
            Ok(lease) => KeptStore::over(store.clone(), lease),
            Err(error) => {
                self.0.warn(&error);
                store.clone()
            }
        }
    }
}

impl Link {
    fn begin(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        pin: Option<Arc<dyn Device>>,
    ) -> Result<Image, Error> {
        let mut line = self.line();
        if line.is_none() {
            *line = Some(Line {
                wire: self.door.connect(PATIENCE)?,
                images: HashMap::new(),
                number: self.lines.fetch_add(1, Ordering::Relaxed),
            });
        }
        let begin = Request::Begin {
            about: About(snapshot.clone()),
        };
        let received = Self::ask(&mut line, &begin, &[])?;
        let opened = line.as_mut().map(|line| line.open(received, pin));
        let (number, opened) = opened.ok_or_else(|| Error::refused("there is no connection"))??;
        drop(line);
        let image = Image::new(self.clone(), number, opened);
        match image.is_whole(snapshot) {
            true => Ok(image),
            // Dropped, it is given up.
            false => Err(Error::refused("the image before is still in use")),
        }
    }

    /// Tells the keeper something through connection `number`, if that is the one there is. If that fails, the trainer goes on without it.
    fn tell(&self, number: u64, request: &Request, body: &[u8]) {
        let mut line = self.line();
        if line.as_ref().is_none_or(|line| line.number != number) {
            return;
        }
        if let Err(error) = Self::ask(&mut line, request, body) {
            drop(line);
            self.warn(&error);
        }
    }

    /// Asks and waits for the answer. A line that breaks is closed.
    fn ask(
        line: &mut Option<Line>,
        request: &Request,
        body: &[u8],
    ) -> Result<Received<Reply>, Error> {
        let Some(open) = line.as_ref() else {
            return Err(Error::refused("there is no connection"));
        };
        let asked = ask(open.wire.as_ref(), request, body);
        if !matches!(asked, Ok(_) | Err(Error::Refused { .. })) {
            *line = None;
        }
        asked
    }

    fn line(&self) -> MutexGuard<'_, Option<Line>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warn(&self, error: &Error) {
        let socket = self.socket.display();
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%socket, %error, "no keeper for captures: they will not survive this process");
        }
    }
}

impl Line {
    /// Puts memory that came along into this process, and cuts it up. Returns the number of this connection as well.
    fn open(
        &mut self,
        received: Received<Reply>,
        pin: Option<Arc<dyn Device>>,
    ) -> Result<(u64, Opened), Error> {
        let Reply::Room {
            snapshot,
            image,
            images,
        } = received.head
        else {
            return Err(Error::message("it is no answer to this question"));
        };
        // Others are not handed out again.
        self.images.retain(|number, _| images.contains(number));
        let mut notes = Vec::new();
        if let (Some(image), Some(file)) = (image, received.file) {
            let options = SlabOptions {
                prefault_threads: pin.as_ref().map_or(0, |_| PREFAULT_THREADS),
                pin,
            };
            let (mapping, refusal) = SharedMemory::received(file)?.map(&options)?;
            self.images.insert(image, mapping);
            notes.extend(refusal.map(|refusal| {
                format!("the keeper's memory could not be pinned, so copies from the device are slower: {refusal}")
            }));
        }
        let mapping = image.and_then(|image| self.images.get_mut(&image));
        let buffers = mapping.and_then(|mapping| mapping.cut(Snapshot::chunk_bytes()));
        let opened = Opened {
            snapshot,
            buffers: buffers.unwrap_or_default(),
            notes,
        };
        Ok((self.number, opened))
    }
}

/// Connects to a keeper, which may take so long for each answer, and learns that it is one.
pub(crate) fn greet(socket: &Path, patience: Duration) -> Result<UnixStream, Error> {
    let stream = socket::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let hello = Request::Hello { version: VERSION };
    match ask(&stream, &hello, &[])?.head {
        Reply::Welcome { version: VERSION } => Ok(stream),
        Reply::Welcome { version } => Err(Error::Version {
            found: version,
            supported: VERSION,
        }),
        other => Err(Error::message(format!("it answered {other:?}"))),
    }
}

/// Asks and waits for the answer.
pub(crate) fn ask(
    wire: &dyn Wire,
    request: &Request,
    body: &[u8],
) -> Result<Received<Reply>, Error> {
    match wire.ask(request, body)? {
        Received {
            head: Reply::Refused { reason },
            ..
        } => Err(Error::Refused { reason }),
        received => Ok(received),
    }
}
