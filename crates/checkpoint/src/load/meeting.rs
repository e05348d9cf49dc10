//! What processes that load together tell each other: a note each, which the others read again and again.
//!
//! A reader puts a parcel in one of its slots and says so in its note. Those it is for take it and say so in theirs, and then the
//! slot is free for the next. Who finishes waits for the others; who fails says why; who dies loses its lock and is found out.

use super::deal::{MAX_EXCHANGE_BYTES, Members, shared_len_limit};
use crate::Error;
use crate::checksum::{crc32c, sha256_hex};
use crate::commit::chain;
use crate::error::StoreContext;
use crate::peers::Peers;
use cairn_store::Exchange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often, at least, a process shows that it is getting on.
const BEAT: Duration = Duration::from_secs(1);
/// How often the locks of the others are looked at.
const LIFE_CHECK: Duration = Duration::from_millis(20);
/// The first and the longest pause between two looks at the notes.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// What a process says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Note {
    /// What it loads, by group, once it knows.
    groups: Option<BTreeMap<u64, u64>>,
    /// What lies in each of its slots.
    slots: Vec<Vec<Part>>,
    /// How many parts it has taken from each peer.
    taken: Vec<u64>,
    /// The bytes it has read: a sign of life.
    read_bytes: u64,
    outcome: Option<Outcome>,
}

/// One peer's part of a parcel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) peer: usize,
    /// Counts the parts from this sender to this peer.
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) crc: u32,
    pub(crate) whole: bool,
}

/// How a load ended for a process, or why it cannot end well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Outcome {
    Finished,
    Damaged { file: String, reason: String },
    Lost { rank: usize, reason: String },
    Failed { rank: usize, message: String },
}

/// A process among those that load together.
pub(crate) struct Meeting<'a> {
    exchange: Exchange,
    peers: &'a Peers,
    slot_bytes: usize,
    said: Mutex<(Note, Instant)>,
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
            said: Mutex::new((note, Instant::now())),
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
        let (note, posted) = &mut *self.lock();
        note.read_bytes += len as u64;
        match posted.elapsed() > BEAT {
            true => self.post(note, posted),
            false => Ok(()),
        }
    }

    /// Whether all parts of the parcel before in the slot of parcel `number` were taken.
    pub(crate) fn is_free(&self, number: usize, watches: &mut [Watch]) -> Result<bool, Error> {
        let slot = self.slot(number);
        let parts = self.lock().0.slots[slot].clone();
        for part in parts {
            watches[part.peer].look(self)?;
            let taken = watches[part.peer].note.taken.get(self.peers.index);
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
        let slot = self.slot(number);
        let begin = (slot * self.slot_bytes) as u64;
        let sent = self.exchange.write_at(begin, parcel);
        sent.doing(|| format!("hand over {} bytes", parcel.len()))?;
        for part in &mut parts {
            part.offset += begin;
        }
        self.say(|note| {
            note.slots[slot] = parts;
            note.read_bytes += parcel.len() as u64;
        })
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
                let outcome = outcome(error, self.peers);
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
    fn is_over(&self) -> Result<bool, Error> {
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

    fn slot(&self, number: usize) -> usize {
        number % self.lock().0.slots.len()
    }

    fn say(&self, change: impl FnOnce(&mut Note)) -> Result<(), Error> {
        let (note, posted) = &mut *self.lock();
        change(note);
        self.post(note, posted)
    }

    fn post(&self, note: &Note, posted: &mut Instant) -> Result<(), Error> {
        *posted = Instant::now();
        let text = serde_json::to_vec(note).expect("a note is plain data");
        let post = self.exchange.post(&text);
        post.doing(|| "tell the other processes".into())
    }

    fn lock(&self) -> MutexGuard<'_, (Note, Instant)> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows one peer for as long as something is expected of it.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) member: usize,
    note: Note,
    text: Option<Vec<u8>>,
    changed: Instant,
    checked: Instant,
}

impl Watch {
    fn new(member: usize) -> Self {
        Self {
            member,
            note: Note::default(),
            text: None,
            changed: Instant::now(),
            checked: Instant::now(),
        }
    }

    /// Starts to count the peer's silence from now on.
    pub(crate) fn restart(&mut self) {
        self.changed = Instant::now();
    }

    /// Reads the peer's note. Fails if the peer has, if it loads something else, or if it is dead or silent for too long.
    fn look(&mut self, meeting: &Meeting) -> Result<(), Error> {
        if self.refresh(meeting)? {
            return Ok(());
        }
        if self.text.is_some() && self.checked.elapsed() > LIFE_CHECK {
            self.checked = Instant::now();
            // Before it died it may have said more.
            let is_dead = !meeting.exchange.is_alive(self.member) && !self.refresh(meeting)?;
            let done = self.note.outcome == Some(Outcome::Finished) || meeting.is_over()?;
            if is_dead && !done {
                return Err(self.lost(meeting, "it ended before the load did".into()));
            }
        }
        let silence = self.changed.elapsed();
        if silence > meeting.peers.timeout {
            let what = self.text.as_ref().map_or("did not come", |_| "was silent");
            let reason = format!("it {what} for {:.1} s", silence.as_secs_f64());
            return Err(self.lost(meeting, reason));
        }
        Ok(())
    }

    /// Reads the note and returns whether it has changed.
    fn refresh(&mut self, meeting: &Meeting) -> Result<bool, Error> {
        let text = meeting.exchange.note(self.member);
        let text = text.doing(|| "look at the notes".into())?;
        if text.is_none() || text == self.text {
            return Ok(false);
        }
        let note: Note = text
            .as_ref()
            .and_then(|text| serde_json::from_slice(text).ok())
            .ok_or_else(|| meeting.broken(self.member, "its note cannot be read"))?;
        (self.note, self.text) = (note, text);
        self.changed = Instant::now();
        let rank = meeting.peers.ranks[self.member];
        if let Some(error) = self.note.outcome.clone().and_then(Outcome::into_error) {
            return Err(error);
        }
        let theirs = &self.note.groups;
        let ours = &meeting.lock().0.groups;
        match (ours, theirs) {
            (Some(ours), Some(theirs))
                if !agree(ours, theirs, meeting.peers.index, self.member) =>
            {
                Err(Error::PeersDisagree { rank })
            }
            _ => Ok(true),
        }
    }

    fn lost(&self, meeting: &Meeting, reason: String) -> Error {
        let rank = meeting.peers.ranks[self.member];
        Error::PeerLost { rank, reason }
    }
}

/// Whether two peers load the same in every group that both are in.
fn agree(ours: &BTreeMap<u64, u64>, theirs: &BTreeMap<u64, u64>, us: usize, them: usize) -> bool {
    let common = |groups: &BTreeMap<u64, u64>| -> BTreeMap<u64, u64> {
        let both = |members| Members(members).contains(us) && Members(members).contains(them);
        let groups = groups.iter().filter(|(members, _)| both(**members));
        groups.map(|(members, hash)| (*members, *hash)).collect()
    };
    common(ours) == common(theirs)
}

/// What to tell the others about an error, so that they can report the same.
fn outcome(error: &Error, peers: &Peers) -> Outcome {
    match error {
        Error::Damaged { file, reason } => Outcome::Damaged {
            file: file.clone(),
            reason: reason.clone(),
        },
        Error::Store {
            source: cairn_store::Error::NotFound { key } | cairn_store::Error::Truncated { key, .. },
            ..
        } => Outcome::Damaged {
            file: key.clone(),
            reason: chain(error),
        },
        Error::PeerLost { rank, reason } => Outcome::Lost {
            rank: *rank,
            reason: reason.clone(),
        },
        Error::PeerFailed { rank, message } => Outcome::Failed {
            rank: *rank,
            message: message.clone(),
        },
        error => Outcome::Failed {
            rank: peers.rank().unwrap_or_default(),
            message: chain(error),
        },
    }
}

impl Outcome {
    fn into_error(self) -> Option<Error> {
        match self {
            Outcome::Finished => None,
            Outcome::Damaged { file, reason } => Some(Error::Damaged { file, reason }),
            Outcome::Lost { rank, reason } => Some(Error::PeerLost { rank, reason }),
            Outcome::Failed { rank, message } => Some(Error::PeerFailed { rank, message }),
        }
    }
}

/// A pause that grows while nothing happens.
#[derive(Debug)]
pub(crate) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(PAUSES.0)
    }
}

impl Pause {
    pub(crate) fn sleep(&mut self) {
        thread::sleep(self.0);
        self.0 = (2 * self.0).min(PAUSES.1);
    }
}
