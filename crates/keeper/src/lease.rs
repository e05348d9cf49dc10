//! What a keeper holds of a run, for as long as somebody reads it.

use crate::Error;
use crate::client::ask;
use crate::door::{Door, Wire};
use crate::message::{About, Held, Reply, Request};
use crate::wire::Received;
use cairn_checkpoint::keeper::{Orphan, Snapshot};
use cairn_device::SharedMemory;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a keeper may compute checksums of what a dead trainer left before the store alone is read.
const PATIENCE: Duration = Duration::from_secs(600);

/// The snapshots of a run in a keeper's memory. None of them is changed while the lease lives.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) snapshots: Vec<Leased>,
    /// The keeper counts this reader for as long as the connection is open.
    _wire: Box<dyn Wire>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) about: Snapshot,
    /// Whether its writer is gone.
    pub(crate) orphan: bool,
    /// `None` for a writer that has no data file.
    pub(crate) memory: Option<Arc<SharedMemory>>,
    pub(crate) part: Vec<u8>,
    /// The small files that travel with the save, by key.
    pub(crate) assets: BTreeMap<String, Vec<u8>>,
}

impl Lease {
    /// Asks the keeper behind `door` for all it holds of `run`.
    ///
    /// # Errors
    /// If there is none, or what it says makes no sense.
    pub(crate) fn take(door: &dyn Door, run: &str) -> Result<Self, Error> {
        let wire = door.connect(PATIENCE)?;
        let run = run.to_string();
        let snapshots = match ask(wire.as_ref(), &Request::Held { run }, &[])?.head {
            Reply::Held { snapshots } => snapshots,
            other => return Err(Error::message(format!("it answered {other:?}"))),
        };
        let fetch = |held: Held| Leased::fetch(wire.as_ref(), held);
        let snapshots: Result<Vec<Leased>, Error> = snapshots.into_iter().map(fetch).collect();
        Ok(Self {
            snapshots: snapshots?,
            _wire: wire,
        })
    }
}

impl Leased {
    fn fetch(wire: &dyn Wire, held: Held) -> Result<Self, Error> {
        let Held {
            snapshot,
            about: About(about),
            orphan,
        } = held;
        let Received { head, body, file } = ask(wire, &Request::Fetch { snapshot }, &[])?;
        let Reply::Fetched { part_len } = head else {
            return Err(Error::message(format!("it answered {head:?}")));
        };
        let split = body.split_at_checked(part_len);
        let (part, draft) = split.ok_or_else(|| Error::message("a part is cut short"))?;
        let memory = file.map(SharedMemory::received).transpose()?;
        // Without them only a step that is nowhere but here lacks something, and says so.
        let assets = Orphan::new(&about, draft).map(|orphan| orphan.assets());
        Ok(Self {
            about,
            orphan,
            memory: memory.map(Arc::new),
            part: part.to_vec(),
            assets: assets.unwrap_or_default(),
        })
    }
}
