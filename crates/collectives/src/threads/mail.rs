//! Messages from one rank to another.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most messages from one rank to another that nobody has received; who sends more waits.
const MAX_WAITING_MESSAGES: usize = 64;

/// The messages between the ranks of a group.
#[derive(Debug, Default)]
pub(super) struct Mail {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<Way, VecDeque<(u64, Vec<u8>)>>,
    closed: Option<String>,
}

/// From whom, and to whom.
pub(super) type Way = (usize, usize);

/// Why a message does not come or go.
pub(super) enum Lost {
    Late,
    Closed(String),
}

impl Mail {
    pub(super) fn send(
        &self,
        way: Way,
        tag: u64,
        bytes: Vec<u8>,
        patience: Duration,
    ) -> Result<(), Lost> {
        let mut state = self.wait(patience, |state| {
            let waiting = state.waiting.get(&way);
            waiting.is_none_or(|waiting| waiting.len() < MAX_WAITING_MESSAGES)
        })?;
        state
            .waiting
            .entry(way)
            .or_default()
            .push_back((tag, bytes));
        self.changed.notify_all();
        Ok(())
    }

    pub(super) fn receive(&self, way: Way, tag: u64, patience: Duration) -> Result<Vec<u8>, Lost> {
        let place = |state: &State| {
            let waiting = state.waiting.get(&way)?;
            waiting.iter().position(|(other, _)| *other == tag)
        };
        let mut state = self.wait(patience, |state| place(state).is_some())?;
        let found = place(&state).and_then(|place| state.waiting.get_mut(&way)?.remove(place));
        self.changed.notify_all();
        Ok(found.map(|(_, bytes)| bytes).expect("just seen"))
    }

    pub(super) fn close(&self, reason: &str) {
        let mut state = self.lock();
        state.closed.get_or_insert_with(|| reason.to_string());
        self.changed.notify_all();
    }

    fn wait(
        &self,
        patience: Duration,
        until: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, Lost> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        while !until(&state) {
            if let Some(reason) = &state.closed {
                return Err(Lost::Closed(reason.clone()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Lost::Late);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
