//! A run belongs to one trainer: who has it, and whether it still lives.
//!
//! ```text
//! lease/00000007         who took the run, the seventh to do so: host, process, launch
//! lease/00000007.beat    that one's signs of life: a counter, and whether it is over
//! ```
//!
//! The highest number has the run. Whoever wants it next creates the number after that, create-only, so that of any number of them one wins, on file
//! systems and in buckets alike. Each holder writes only its own beat, and finds out that it lost the run when there is a higher number: nothing is
//! ever compared and swapped. The newest claim always stays, so that numbers only grow; those before it go when what their launches left is cleared.
//!
//! Clocks of two machines are never compared. A process of the same machine lives or does not, as the system says. Of another one an observer
//! watches the counter, by its own clock: what does not change for [`SILENCE`] is taken for dead.

mod claims;
mod leftovers;
mod process;
#[cfg(test)]
mod tests;
mod watch;

use crate::Error;
use crate::clock::Clock;
use crate::error::{StoreContext, chain};
use cairn_store::{Error as StoreError, PutMode, Store};
use claims::{Beat, Claim, beat_key, bytes_of, claim_key, numbers, read};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use watch::{await_end, await_parting};

/// How long the counter of a trainer on another machine may stay as it is before the run is taken from it.
pub const SILENCE: Duration = Duration::from_secs(30);

/// How often a trainer gives a sign of life.
const BEAT: Duration = Duration::from_secs(5);

/// How often an observer looks for one.
const LOOK: Duration = Duration::from_secs(1);

/// How long who takes a run over waits for its trainer to end.
const PARTING: Duration = Duration::from_secs(20);

/// How long a holder that could not look trusts that the run is still its own.
const TRUST: Duration = Duration::from_secs(15);

/// How a run is to be taken.
#[derive(Debug)]
pub struct LeaseRequest<'a> {
    /// The launch that wants it.
    pub launch: &'a str,
    /// Whether it is taken from a trainer that may live.
    pub take_over: bool,
    /// What ends the wait for a sign of life.
    pub stop: &'a AtomicBool,
    /// What tells the time.
    pub clock: Arc<dyn Clock>,
}

/// A run that is this process's own until it is dropped, or taken over.
#[derive(Debug)]
pub struct Lease {
    held: Arc<Held>,
    beating: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Held {
    store: Arc<dyn Store>,
    number: u64,
    claim: Claim,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    counter: u64,
    /// When nobody else had the run, by the clock of this process.
    looked: Duration,
    is_over: bool,
    /// Who took the run.
    lost_to: Option<Claim>,
}

impl Lease {
    /// Takes the run that `store` is rooted at, which nobody else has, or whose trainer is dead.
    ///
    /// # Crash safety
    /// Of any number of processes that take a run at the same time one wins. One that dies leaves the run to the next.
    ///
    /// # Errors
    /// [`Error::RunInUse`] if another trainer has it and lives.
    pub fn take(store: Arc<dyn Store>, request: &LeaseRequest<'_>) -> Result<Self, Error> {
        let claim = Claim::own(request.launch);
        let number = loop {
            let newest = numbers(store.as_ref())?.pop();
            if let Some(number) = newest.filter(|_| !request.take_over) {
                await_end(store.as_ref(), number, &claim, request)?;
            }
            let number = newest.unwrap_or(0) + 1;
            let key = claim_key(number);
            match store.put(&key, &bytes_of(&claim), PutMode::Create) {
                // Another one was faster.
                Err(StoreError::AlreadyExists { .. }) => continue,
                put => put.doing(|| format!("write `{key}`"))?,
            }
            // The listing may have been an old one.
            if numbers(store.as_ref())?.pop() == Some(number) {
                break number;
            }
        };
        if request.take_over {
            await_parting(store.as_ref(), number, &claim, request)?;
        }
        let held = Arc::new(Held {
            state: Mutex::new(State {
                looked: request.clock.elapsed(),
                ..State::default()
            }),
            store,
            number,
            claim,
            clock: request.clock.clone(),
            ended: Condvar::new(),
        });
        held.beat();
        let beating = held.clone();
        let beating = thread::spawn(move || beating.beat_on());
        Ok(Self {
            held,
            beating: Some(beating),
        })
    }

    /// Who took the run from this process, if somebody did: nothing may be saved any more. Looks for itself if it has not heard for a while,
    /// because the process stood still.
    pub fn lost_to(&self) -> Option<String> {
        let held = &self.held;
        let is_old = {
            let state = held.state();
            held.clock.elapsed().saturating_sub(state.looked) > TRUST && state.lost_to.is_none()
        };
        if is_old {
            held.beat();
        }
        held.state().lost_to.as_ref().map(Claim::text)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.held.state().is_over = true;
        self.held.ended.notify_all();
        if let Some(thread) = self.beating.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
        self.held.leave();
    }
}

impl Held {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives signs of life until the run is left or lost.
    fn beat_on(&self) {
        loop {
            let state = self.state();
            let waited = self
                .ended
                .wait_timeout_while(state, BEAT, |state| !state.is_over);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_over || state.lost_to.is_some() {
                return;
            }
            drop(state);
            self.beat();
        }
    }

    /// Looks whether the run is still this process's own, and gives a sign of life. A store that does not answer is asked again later.
    fn beat(&self) {
        let began = self.clock.elapsed();
        match self.newer() {
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot look whose run it is");
                return;
            }
            Ok(Some(newer)) => {
                tracing::warn!("the run was taken over by {}", newer.text());
                self.state().lost_to = Some(newer);
                return;
            }
            Ok(None) => {}
        }
        let counter = {
            let mut state = self.state();
            state.looked = began;
            state.counter += 1;
            state.counter
        };
        self.put(Beat {
            counter,
            over: false,
        });
    }

    /// Who has the run after this process.
    fn newer(&self) -> Result<Option<Claim>, Error> {
        let store = self.store.as_ref();
        let numbers = numbers(store)?;
        let is_there = numbers.contains(&self.number);
        let newest = numbers
            .last()
            .copied()
            .filter(|newest| *newest != self.number);
        // A folder that was deleted and begun anew has lower numbers.
        let Some(newest) = newest.filter(|newest| *newest > self.number || !is_there) else {
            return Ok(None);
        };
        let unknown = Claim {
            host: "another machine".into(),
            process: None,
            launch: String::new(),
        };
        Ok(Some(read(store, &claim_key(newest))?.unwrap_or(unknown)))
    }

    fn put(&self, beat: Beat) {
        let key = beat_key(self.number);
        if let Err(error) = self.store.put(&key, &bytes_of(&beat), PutMode::Replace) {
            tracing::debug!(error = %chain(&error), "cannot give a sign of life");
        }
    }

    /// Says that this trainer is done with the run, whoever has it.
    fn leave(&self) {
        let counter = self.state().counter + 1;
        self.put(Beat {
            counter,
            over: true,
        });
    }
}
