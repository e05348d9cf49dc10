//! A peer as the others see it: what it says, and whether it lives.

use super::meeting::Meeting;
use super::note::{Note, Outcome, agree};
use crate::Error;
use crate::error::StoreContext;
use std::thread;
use std::time::{Duration, Instant};

/// How often the locks of the others are looked at.
const LIFE_CHECK: Duration = Duration::from_millis(20);
/// The first and the longest pause between two looks at the notes.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// Follows one peer for as long as something is expected of it.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) member: usize,
    pub(super) note: Note,
    text: Option<Vec<u8>>,
    changed: Instant,
    checked: Instant,
}

impl Watch {
    pub(super) fn new(member: usize) -> Self {
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
    pub(super) fn look(&mut self, meeting: &Meeting) -> Result<(), Error> {
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
    pub(super) fn refresh(&mut self, meeting: &Meeting) -> Result<bool, Error> {
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
        let ours = &meeting.groups();
        match (ours, theirs) {
            (Some(ours), Some(theirs))
                if !agree(ours, theirs, meeting.peers.index, self.member) =>
            {
                Err(Error::PeersDisagree { rank })
            }
            _ => Ok(true),
        }
    }

    pub(super) fn lost(&self, meeting: &Meeting, reason: String) -> Error {
        let rank = meeting.peers.ranks[self.member];
        Error::PeerLost { rank, reason }
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
