//! What processes that load together tell each other: a note each, which the others read again and again.
//!
//! A reader puts a parcel in one of its slots and says so in its note. Those it is for take it and say so in theirs, and then the
//! slot is free for the next. Who finishes waits for the others; who fails says why; who dies loses its lock and is found out.

use super::deal::{MAX_EXCHANGE_BYTES, shared_len_limit};
use super::note::{Note, Outcome, Part};
use super::watch::{Pause, Watch};
use crate::Error;
use crate::checksum::{crc32c, sha256_hex};
use crate::error::StoreContext;
use crate::peers::Peers;
use cairn_store::Exchange;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often, at least, a process shows that it is getting on.
const BEAT: Duration = Duration::from_secs(1);

/// A process among those that load together.
pub(crate) struct Meeting<'a> {
    pub(super) exchange: Exchange,
    pub(super) peers: &'a Peers,
    slot_bytes: usize,
    said: Mutex<Said>,
}

/// What this process has said.
struct Said {
    note: Note,
    when: Instant,
    /// The parcel in each slot.
    parcels: Vec<Option<usize>>,
}

impl<'a> Meeting<'a> {
    /// Comes to the place where the others will come, too.
    pub(crate) fn join(peers: &'a Peers) -> Result<Self, Error> {
        let count = peers.ranks.len();
        let name = sha256_hex(peers.token.as_bytes());
        let exchange = Exchange::join(&peers.folder, &name[..32], peers.index)
            .doing(|| format!("meet the other processes in `{}`", peers.folder.display()))?;
        let slot_bytes = shared_len_limit(count);
        let available = exchange.available_bytes().ok().flatten();
        let available = usize::try_from(available.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let slots = MAX_EXCHANGE_BYTES.min(available / 2) / count / slot_bytes;
        let note = Note {
            slots: vec![Vec::new(); slots.max(1)],
            taken: vec![0; count],
            ..Note::default()
        };
        Ok(Self {
            exchange,
            peers,
            slot_bytes,
            said: Mutex::new(Said {
                parcels: vec![None; note.slots.len()],
                note,
                when: Instant::now(),
            }),
        })
    }

    /// How many processes load together.
    pub(crate) fn count(&self) -> usize {
        self.peers.ranks.len()
    }

    /// Says what this process loads.
    pub(crate) fn announce(&self, groups: BTreeMap<u64, u64>) -> Result<(), Error> {
        self.say(|note| note.groups = Some(groups))
    }

    /// Says that this process has read `len` bytes more.
    pub(crate) fn beat(&self, len: usize) -> Result<(), Error> {
        let mut said = self.lock();
        said.note.read_bytes += len as u64;
        match said.when.elapsed() > BEAT {
            true => self.post(&mut said),
            false => Ok(()),
        }
    }

    /// Whether the slot of parcel `number` is free: the parcel before it in that slot was posted, and everyone took its part.
    pub(crate) fn is_free(&self, number: usize, watches: &mut [Watch]) -> Result<bool, Error> {
        let parts = {
            let said = self.lock();
            let slot = number % said.parcels.len();
            if said.parcels[slot] != number.checked_sub(said.parcels.len()) {
                return Ok(false);
            }
            said.note.slots[slot].clone()
        };
        for part in parts {
            let watch = &mut watches[part.peer];
            watch.look(self)?;
            let taken = watch.note.taken.get(self.peers.index);
            if taken.is_none_or(|taken| *taken <= part.number) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hands over parcel `number`. Its slot must be free; offsets of `parts` count from the start of the parcel.
    pub(crate) fn send(
        &self,
        number: usize,
        mut parts: Vec<Part>,
        parcel: &[u8],
    ) -> Result<(), Error> {
        let slot = number % self.lock().parcels.len();
        let begin = (slot * self.slot_bytes) as u64;
        let sent = self.exchange.write_at(begin, parcel);
        sent.doing(|| format!("hand over {} bytes", parcel.len()))?;
        for part in &mut parts {
            part.offset += begin;
        }
        let mut said = self.lock();
        said.note.slots[slot] = parts;
        said.parcels[slot] = Some(number);
        self.post(&mut said)
    }

    /// Part `number` from the watched peer, if it is there.
    pub(crate) fn find(&self, watch: &mut Watch, number: u64) -> Result<Option<Part>, Error> {
        watch.look(self)?;
        let mut parts = watch.note.slots.iter().flatten();
        let is_it = |part: &&Part| part.peer == self.peers.index && part.number == number;
        Ok(parts.find(is_it).cloned())
    }

    /// Reads a part from the watched peer into `buffer`, and says that it was taken.
    pub(crate) fn take(
        &self,
        watch: &mut Watch,
        part: &Part,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let sender = watch.member;
        if let Err(error) = self.exchange.read_at(sender, part.offset, buffer) {
            // A peer that fails takes its bytes away, after it has said why.
            watch.refresh(self)?;
            return Err(watch.lost(self, format!("what it handed over is gone: {error}")));
        }
        if crc32c(buffer) != part.crc {
            return Err(self.broken(sender, "the bytes it handed over changed on the way"));
        }
        self.say(|note| note.taken[sender] = part.number + 1)
    }

    /// The error for a peer that does not keep to the rules.
    pub(crate) fn broken(&self, sender: usize, message: &str) -> Error {
        Error::PeerFailed {
            rank: self.peers.ranks[sender],
            message: message.to_string(),
        }
    }

    /// Says how the load ended here, and waits for all to succeed or one to fail. Leaves nothing behind if everyone came.
    pub(crate) fn finish<T>(self, result: Result<T, Error>) -> Result<T, Error> {
        let result = result.and_then(|value| {
            self.say(|note| note.outcome = Some(Outcome::Finished))?;
            self.wait_for_all()?;
            Ok(value)
        });
        match &result {
            Ok(_) => self.exchange.remove(),
            Err(error) => {
                let rank = self.peers.ranks[self.peers.index];
                let outcome = Outcome::of(error, rank);
                // The others find out by the lock if this cannot be said.
                let _ = self.say(|note| note.outcome = Some(outcome));
                if self.is_last() {
                    self.exchange.remove();
                }
            }
        }
        result
    }

    fn wait_for_all(&self) -> Result<(), Error> {
        let mut watches = self.watches();
        let mut pause = Pause::default();
        for watch in watches.iter_mut().filter(|w| w.member != self.peers.index) {
            while watch.note.outcome != Some(Outcome::Finished) {
                watch.look(self)?;
                if self.is_over()? {
                    return Ok(());
                }
                pause.sleep();
            }
        }
        Ok(())
    }

    /// Whether somebody has seen that everyone finished, and cleared the place.
    pub(super) fn is_over(&self) -> Result<bool, Error> {
        let own = self.exchange.note(self.peers.index);
        Ok(own.doing(|| "look at the notes".into())?.is_none())
    }

    /// Whether all others have failed or are dead: nobody will come here any more.
    fn is_last(&self) -> bool {
        let others = (0..self.peers.ranks.len()).filter(|peer| *peer != self.peers.index);
        others.into_iter().all(|peer| {
            let note = self.exchange.note(peer).ok().flatten();
            let note = note.and_then(|note| serde_json::from_slice::<Note>(&note).ok());
            note.is_some_and(|note| match note.outcome {
                Some(Outcome::Finished) | None => !self.exchange.is_alive(peer),
                Some(_) => true,
            })
        })
    }

    /// A watch for each peer, this one included.
    pub(crate) fn watches(&self) -> Vec<Watch> {
        (0..self.peers.ranks.len()).map(Watch::new).collect()
    }

    fn say(&self, change: impl FnOnce(&mut Note)) -> Result<(), Error> {
        let mut said = self.lock();
        change(&mut said.note);
        self.post(&mut said)
    }

    fn post(&self, said: &mut Said) -> Result<(), Error> {
        said.when = Instant::now();
        let text = serde_json::to_vec(&said.note).expect("a note is plain data");
        let post = self.exchange.post(&text);
        post.doing(|| "tell the other processes".into())
    }

    /// What this process loads, by group, once it knows.
    pub(super) fn groups(&self) -> Option<BTreeMap<u64, u64>> {
        self.lock().note.groups.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
