//! Messages that have arrived at a rank.

use super::letter::{Address, Kind, Letter};
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages that have arrived at a rank and that it has not asked for yet.
#[derive(Debug, Default)]
pub struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    letters: HashMap<Wanted, VecDeque<Letter>>,
    closed: Option<String>,
}

/// From which rank in the world, and what.
pub(super) type Wanted = (usize, Address);

/// Why letters do not come.
#[derive(Debug)]
pub(super) enum Missed {
    /// Who did not write in time, by rank in the world.
    Late(Vec<usize>),
    Closed(String),
}

impl Mailbox {
    /// Takes in what rank `from` sent.
    pub fn deliver(&self, from: usize, message: Vec<u8>) {
        match Letter::open(message) {
            None => drop(self.close(&format!("rank {from} sent what is no message"))),
            Some((address, letter)) if address.kind == Kind::End => {
                self.close(&String::from_utf8_lossy(letter.payload()));
            }
            Some((address, letter)) => {
                let mut state = self.lock();
                let letters = state.letters.entry((from, address)).or_default();
                letters.push_back(letter);
                self.changed.notify_all();
            }
        }
    }

    /// Ends all calls with a reason, unless they have been ended already; tells whether it did.
    pub fn close(&self, reason: &str) -> bool {
        let mut state = self.lock();
        let open = state.closed.is_none();
        state.closed.get_or_insert_with(|| reason.to_string());
        self.changed.notify_all();
        open
    }

    /// Why calls were ended, if they were.
    pub(super) fn closed(&self) -> Option<String> {
        self.lock().closed.clone()
    }

    /// Waits until there is one of each that is wanted, and takes them out.
    pub(super) fn collect(
        &self,
        wanted: &[Wanted],
        patience: Duration,
    ) -> Result<Vec<Letter>, Missed> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        // Where to look first: those before have been seen.
        let mut seen = 0;
        loop {
            let there = |wanted: &&Wanted| state.letters.contains_key(wanted);
            seen += wanted[seen..].iter().take_while(there).count();
            if seen == wanted.len() {
                return Ok(state.take(wanted));
            }
            if let Some(reason) = &state.closed {
                return Err(Missed::Closed(reason.clone()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let late = wanted.iter().filter(|wanted| !there(wanted));
                return Err(Missed::Late(late.map(|(from, _)| *from).collect()));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, wanted: &[Wanted]) -> Vec<Letter> {
        let mut taken = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let letters = self.letters.get_mut(wanted).expect("just seen");
            taken.extend(letters.pop_front());
            if letters.is_empty() {
                self.letters.remove(wanted);
            }
        }
        taken
    }
}
