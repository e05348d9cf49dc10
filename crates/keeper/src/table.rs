//! What a keeper holds, for whom, and when it may go: all its decisions, without sockets, files or threads.
//!
//! ```text
//!              writer lives                                     writer is gone
//!  filling ─▶ captured ─▶ written ─▶ committed        filling ─▶ (forgotten)
//!                 └─────────┴──── dies ──────────────▶ sealing ─▶ persisting ─▶ committed
//!                                                                               stuck ◀──┘  ▲
//!                                                                                 └─ again ─┘
//! ```
//!
//! A snapshot that is settled (committed or stuck) stays until a newer attempt at its run is complete: every writer of it captured
//! here, or its step committed. So the last complete capture is there at every moment, and a run takes two images for each writer.
//! One that is stuck is tried again, and is the last copy of its state: neither time nor another run takes its memory.

mod entry;
mod images;
mod leaving;
mod limits;
#[cfg(test)]
mod tests;

pub(crate) use entry::{Entry, Failure, Prospect, Stage};
pub use limits::Limits;

use crate::Error;
use crate::message::{About, Held};
use crate::status::{HeldStatus, Status};
use cairn_checkpoint::Clock;
use cairn_checkpoint::keeper::Snapshot;
use cairn_device::SharedMemory;
use images::Images;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// One connection.
pub(crate) type ClientId = u64;

/// Everything a keeper holds.
#[derive(Debug)]
pub(crate) struct Table {
    limits: Limits,
    clock: Arc<dyn Clock>,
    entries: BTreeMap<u64, Entry>,
    images: Images,
    next: u64,
}

/// What a client gets for a snapshot.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) snapshot: u64,
    pub(crate) image: Option<u64>,
    /// Memory that the client does not have yet.
    pub(crate) memory: Option<Arc<SharedMemory>>,
    /// All the client has or gets.
    pub(crate) images: Vec<u64>,
}

/// A snapshot whose writer died before its step was committed.
#[derive(Debug, Clone)]
pub(crate) struct Orphaned {
    pub(crate) snapshot: u64,
    pub(crate) about: Snapshot,
    pub(crate) memory: Option<Arc<SharedMemory>>,
    pub(crate) draft: Arc<[u8]>,
    pub(crate) part: Option<Arc<[u8]>>,
}

impl Table {
    pub(crate) fn new(limits: Limits, clock: Arc<dyn Clock>) -> Self {
        Self {
            limits,
            clock,
            entries: BTreeMap::new(),
            images: Images::default(),
            next: 1,
        }
    }

    /// Finds room for a snapshot.
    pub(crate) fn begin(&mut self, client: ClientId, about: Snapshot) -> Result<Room, Error> {
        let same = |entry: &Entry| entry.is_of(&about) && entry.about.writer == about.writer;
        if self.entries.values().any(same) {
            return Err(Error::refused("there is such a snapshot already"));
        }
        let used = self.used();
        let (image, memory) = match about.room_bytes() {
            0 => (None, None),
            room => match self.images.reuse(client, room, &used) {
                Some(image) => (Some(image), None),
                None => {
                    let image = self.new_image(client, &about.run, room)?;
                    (Some(image), self.images.memory(image))
                }
            },
        };
        let snapshot = self.number();
        let entry = Entry::new(about, image, client, self.clock.elapsed());
        self.entries.insert(snapshot, entry);
        Ok(Room {
            snapshot,
            image,
            memory,
            images: self.images.of_client(client),
        })
    }

    /// Every byte of a snapshot is there.
    pub(crate) fn captured(
        &mut self,
        client: ClientId,
        snapshot: u64,
        draft: Vec<u8>,
    ) -> Result<(), Error> {
        self.limits.check(self.used_bytes(), draft.len() as u64)?;
        let now = self.clock.elapsed();
        let entry = self.owned(client, snapshot)?;
        entry.draft = draft.into();
        entry.enter(Stage::Captured, now);
        self.retire();
        Ok(())
    }

    /// A writer made its data durable, and this part with it.
    pub(crate) fn written(
        &mut self,
        client: ClientId,
        snapshot: u64,
        part: Vec<u8>,
    ) -> Result<(), Error> {
        let now = self.clock.elapsed();
        let entry = self.owned(client, snapshot)?;
        entry.part = Some(part.into());
        entry.enter(Stage::Written, now);
        Ok(())
    }

    /// The step of a snapshot is committed.
    pub(crate) fn committed(&mut self, client: ClientId, snapshot: u64) -> Result<(), Error> {
        let now = self.clock.elapsed();
        self.owned(client, snapshot)?.enter(Stage::Committed, now);
        self.retire();
        Ok(())
    }

    /// A snapshot that its writer does not want.
    pub(crate) fn abandon(&mut self, client: ClientId, snapshot: u64) -> Result<(), Error> {
        self.owned(client, snapshot)?;
        self.entries.remove(&snapshot);
        Ok(())
    }

    /// The checksums of an orphan are known.
    pub(crate) fn sealed(&mut self, snapshot: u64, part: Vec<u8>) {
        let now = self.clock.elapsed();
        if let Some(entry) = self.entries.get_mut(&snapshot) {
            entry.part = Some(part.into());
            if !matches!(entry.stage, Stage::Stuck(_)) {
                entry.enter(Stage::Persisting, now);
            }
        }
    }

    /// What became of an orphan.
    pub(crate) fn settled(&mut self, snapshot: u64, result: Result<(), Failure>) {
        let now = self.clock.elapsed();
        if let Some(entry) = self.entries.get_mut(&snapshot) {
            entry.retry.is_running = false;
            match result {
                Ok(()) => entry.enter(Stage::Committed, now),
                Err(failure) => entry.fail(failure, now),
            }
        }
        self.retire();
    }

    /// Whether an orphan could not be committed before.
    pub(crate) fn is_stuck(&self, snapshot: u64) -> bool {
        let entry = self.entries.get(&snapshot);
        entry.is_some_and(|entry| matches!(entry.stage, Stage::Stuck(_)))
    }

    /// The stuck orphans whose time has come: whoever asks tries to commit them, and says what became of it.
    pub(crate) fn due(&mut self) -> Vec<Orphaned> {
        let now = self.clock.elapsed();
        let entries = self.entries.iter_mut();
        let due: Vec<u64> = entries
            .filter(|(_, entry)| entry.is_due(now))
            .map(|(snapshot, entry)| {
                entry.retry.is_running = true;
                *snapshot
            })
            .collect();
        due.into_iter()
            .filter_map(|snapshot| self.orphaned(snapshot))
            .collect()
    }

    /// Has the stuck orphans of `run`, or of all runs, tried again at once.
    pub(crate) fn hurry(&mut self, run: Option<&str>) {
        let of_run = |entry: &&mut Entry| run.is_none_or(|run| entry.about.run == run);
        let entries = self.entries.values_mut().filter(of_run);
        entries.for_each(|entry| entry.retry.at = Duration::ZERO);
    }

    /// Whether a snapshot of `run` will be readable in a moment.
    pub(crate) fn is_sealing(&self, run: &str) -> bool {
        let mut entries = self.entries.values();
        entries.any(|entry| entry.about.run == run && matches!(entry.stage, Stage::Sealing))
    }

    /// The snapshots of `run` that can be read; they stay for as long as `client` does.
    pub(crate) fn held(&mut self, client: ClientId, run: &str) -> Vec<Held> {
        let readable = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| entry.about.run == run && entry.part.is_some());
        readable
            .map(|(snapshot, entry)| {
                entry.readers.insert(client);
                Held {
                    snapshot: *snapshot,
                    about: About(entry.about.clone()),
                    orphan: entry.client.is_none(),
                }
            })
            .collect()
    }

    /// What `client` reads.
    pub(crate) fn fetch(&self, client: ClientId, snapshot: u64) -> Result<Orphaned, Error> {
        let entry = self.entries.get(&snapshot);
        entry
            .filter(|entry| entry.readers.contains(&client))
            .and_then(|_| self.orphaned(snapshot))
            .ok_or_else(|| Error::refused("there is no such snapshot for this reader"))
    }

    /// Forgets what is safe elsewhere or of no use, belongs to nobody, and has been so for `age`.
    pub(crate) fn forget(&mut self, age: Duration) {
        let now = self.clock.elapsed();
        let is_old = |entry: &Entry| now.saturating_sub(entry.since) >= age;
        let entries = self.entries.iter();
        let old: Vec<u64> = entries
            .filter(|(_, entry)| is_old(entry) && self.is_dispensable(entry))
            .map(|(snapshot, _)| *snapshot)
            .collect();
        for snapshot in old {
            self.entries.remove(&snapshot);
        }
        self.sweep();
    }

    /// Whether nobody would miss it: nobody uses it, and it is not the last copy of what it holds.
    fn is_dispensable(&self, entry: &Entry) -> bool {
        entry.is_idle()
            && match &entry.stage {
                Stage::Stuck(failure) => match failure.prospect {
                    Prospect::Open => false,
                    // It loads from memory, but only together with those of all other writers.
                    Prospect::GivenUp => self.captured_writers(&entry.about) < entry.about.world,
                    Prospect::Taken => true,
                },
                _ => true,
            }
    }

    /// The memory handed out.
    pub(crate) fn used_bytes(&self) -> u64 {
        let documents = self.entries.values().map(Entry::document_bytes);
        self.images.len_bytes() + documents.sum::<u64>()
    }

    /// What there is, for whoever asks.
    pub(crate) fn status(&self, clients: usize) -> Status {
        let snapshots = self.entries.values().map(|entry| self.describe(entry));
        Status {
            process: std::process::id(),
            used_bytes: self.used_bytes(),
            max_bytes: self.limits.max_bytes,
            max_run_bytes: self.limits.max_run_bytes,
            clients,
            snapshots: snapshots.collect(),
        }
    }

    /// What is in memory alone, and goes with it: what could not be committed and is of use.
    pub(crate) fn last_copies(&self) -> Vec<HeldStatus> {
        let stuck = self
            .entries
            .values()
            .filter(|entry| matches!(entry.stage, Stage::Stuck(_)) && !self.is_dispensable(entry));
        stuck.map(|entry| self.describe(entry)).collect()
    }

    fn describe(&self, entry: &Entry) -> HeldStatus {
        let now = self.clock.elapsed();
        HeldStatus {
            run: entry.about.run.clone(),
            step: entry.about.step,
            attempt: entry.about.attempt.clone(),
            writer: entry.about.writer,
            world: entry.about.world,
            len_bytes: entry.about.len_bytes,
            stage: entry.stage.name().to_string(),
            reason: entry.stage.reason().map(str::to_string),
            orphan: entry.client.is_none(),
            readers: entry.readers.len(),
            tries: entry.retry.failures,
            seconds: now.saturating_sub(entry.since).as_secs_f64(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn owned(&mut self, client: ClientId, snapshot: u64) -> Result<&mut Entry, Error> {
        let entry = self.entries.get_mut(&snapshot);
        entry
            .filter(|entry| entry.client == Some(client))
            .ok_or_else(|| Error::refused("there is no such snapshot of this writer"))
    }

    fn orphaned(&self, snapshot: u64) -> Option<Orphaned> {
        let entry = self.entries.get(&snapshot)?;
        Some(Orphaned {
            snapshot,
            about: entry.about.clone(),
            memory: self.memory(entry.image),
            draft: entry.draft.clone(),
            part: entry.part.clone(),
        })
    }

    fn memory(&self, image: Option<u64>) -> Option<Arc<SharedMemory>> {
        image.and_then(|image| self.images.memory(image))
    }

    /// The images that snapshots lie in.
    fn used(&self) -> BTreeSet<u64> {
        let entries = self.entries.values();
        entries.filter_map(|entry| entry.image).collect()
    }

    fn new_image(&mut self, client: ClientId, run: &str, len: u64) -> Result<u64, Error> {
        self.make_room(run, len)?;
        let memory = SharedMemory::create(len)?;
        let number = self.number();
        self.images.add(number, memory, client, run);
        Ok(number)
    }

    /// Lets old snapshots that belong to nobody go until `len` more bytes are within the limits.
    fn make_room(&mut self, run: &str, len: u64) -> Result<(), Error> {
        loop {
            self.limits.check_run(self.images.run_bytes(run), len)?;
            let Err(refusal) = self.limits.check(self.used_bytes(), len) else {
                return Ok(());
            };
            let idle = self
                .entries
                .iter()
                .find(|(_, entry)| entry.about.run != run && self.is_dispensable(entry));
            let Some(oldest) = idle.map(|(snapshot, _)| *snapshot) else {
                return Err(refusal);
            };
            self.entries.remove(&oldest);
            self.sweep();
        }
    }

    /// Lets snapshots go whose place a newer one has taken.
    fn retire(&mut self) {
        let over: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_settled() || entry.is_cut && entry.is_pending())
            .filter(|(_, entry)| entry.readers.is_empty())
            .filter(|(_, entry)| self.is_superseded(entry))
            .map(|(snapshot, _)| *snapshot)
            .collect();
        over.iter()
            .for_each(|snapshot| drop(self.entries.remove(snapshot)));
        self.sweep();
    }

    /// Whether a newer attempt at the run is complete.
    fn is_superseded(&self, old: &Entry) -> bool {
        let born = self.born(&old.about);
        let newer = self.entries.values().filter(|entry| {
            entry.about.run == old.about.run
                && entry.about.attempt != old.about.attempt
                && self.born(&entry.about) > born
        });
        newer.into_iter().any(|entry| {
            entry.stage == Stage::Committed
                || self.captured_writers(&entry.about) == entry.about.world
        })
    }

    /// When the first writer of an attempt came.
    fn born(&self, about: &Snapshot) -> Option<u64> {
        let mut same = self.entries.iter().filter(|(_, entry)| entry.is_of(about));
        same.next().map(|(snapshot, _)| *snapshot)
    }

    fn captured_writers(&self, about: &Snapshot) -> usize {
        let same = self.entries.values().filter(|entry| entry.is_of(about));
        same.filter(|entry| entry.stage != Stage::Filling).count()
    }

    /// Lets memory go that nobody needs.
    fn sweep(&mut self) {
        let used = self.used();
        self.images.sweep(&used);
    }
}
