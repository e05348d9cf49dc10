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

mod leftovers;
mod process;
#[cfg(test)]
mod tests;

use crate::Error;
use crate::clock::Clock;
use crate::error::{StoreContext, chain};
use cairn_store::{Error as StoreError, PutMode, Store};
use process::Process;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

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

/// The folder of a run that says who has it.
const FOLDER: &str = "lease";

/// Who has a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    host: String,
    /// Which process it is, if its system tells.
    process: Option<Process>,
    /// The launch it belongs to.
    launch: String,
}

/// A sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Beat {
    counter: u64,
    /// Whether the trainer has left the run.
    over: bool,
}

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

impl Claim {
    fn own(launch: &str) -> Self {
        Self {
            host: process::host(),
            process: Process::own(),
            launch: launch.to_string(),
        }
    }

    /// `process 12 on `host``.
    fn text(&self) -> String {
        match &self.process {
            Some(process) => format!("process {} on `{}`", process.pid, self.host),
            None => format!("a process on `{}`", self.host),
        }
    }
}

fn claim_key(number: u64) -> String {
    format!("{FOLDER}/{number:08}")
}

fn beat_key(number: u64) -> String {
    format!("{FOLDER}/{number:08}.beat")
}

/// The numbers of all claims, ascending.
fn numbers(store: &dyn Store) -> Result<Vec<u64>, Error> {
    let listing = store.list_files(FOLDER);
    let listing = listing.doing(|| format!("list `{FOLDER}`"))?;
    let mut numbers: Vec<u64> = listing
        .iter()
        .filter_map(|meta| meta.key.rsplit('/').next()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// What an object says; `None` if there is none, or it is not one of ours.
fn read<T: for<'a> Deserialize<'a>>(store: &dyn Store, key: &str) -> Result<Option<T>, Error> {
    match store.get(key) {
        Err(StoreError::NotFound { .. }) => Ok(None),
        bytes => {
            let bytes = bytes.doing(|| format!("read `{key}`"))?;
            Ok(serde_json::from_slice(&bytes).ok())
        }
    }
}

fn bytes_of(value: &impl Serialize) -> Vec<u8> {
    // Texts and numbers can always be written.
    serde_json::to_vec(value).unwrap_or_default()
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

/// Waits until the holder of claim `number` is over or dead.
fn await_end(
    store: &dyn Store,
    number: u64,
    own: &Claim,
    request: &LeaseRequest<'_>,
) -> Result<(), Error> {
    let clock = request.clock.as_ref();
    let look = || read::<Beat>(store, &beat_key(number));
    // One that makes no sense is watched like any other.
    let key = claim_key(number);
    let holder: Option<Claim> = read(store, &key)?;
    let is_there = || store.head(&key).doing(|| format!("look for `{key}`"));
    if holder.is_none() && is_there()?.is_none() {
        // A later one cleared it away.
        return Ok(());
    }
    let mut beat = look()?;
    if beat.is_some_and(|beat| beat.over) {
        return Ok(());
    }
    let in_use = |seen: String| Error::RunInUse {
        url: store.url(),
        holder: holder
            .as_ref()
            .map_or("another process".into(), Claim::text),
        launch: holder
            .as_ref()
            .map_or(String::new(), |it| it.launch.clone()),
        seen,
    };
    let process = holder.as_ref().and_then(|holder| holder.process.as_ref());
    match process.zip(own.process.as_ref()) {
        None => {}
        Some((process, here)) => match process.is_alive(here) {
            Some(true) => return Err(in_use("it is running".into())),
            Some(false) => return Ok(()),
            None => {}
        },
    }
    let text = holder
        .as_ref()
        .map_or("another process".into(), Claim::text);
    tracing::warn!(
        "the run belongs to {text}: watching for {} s whether it lives",
        SILENCE.as_secs()
    );
    let (mut since, mut changed) = (clock.elapsed(), false);
    loop {
        let silent = clock.elapsed().saturating_sub(since);
        if silent >= SILENCE {
            return Ok(());
        }
        if changed || request.stop.load(Ordering::Relaxed) {
            let seconds = silent.as_secs();
            return Err(in_use(match changed {
                true => format!("it gave a sign of life {seconds} s ago"),
                false => format!(
                    "it gave no sign of life for {seconds} s, and {} are needed",
                    SILENCE.as_secs()
                ),
            }));
        }
        clock.sleep(LOOK);
        let now = look()?;
        if now.is_some_and(|now| now.over) {
            return Ok(());
        }
        if now != beat {
            (beat, since, changed) = (now, clock.elapsed(), true);
        }
    }
}

/// Waits until the trainers that had the run before claim `number` have ended, or for so long that they seem dead.
fn await_parting(
    store: &dyn Store,
    number: u64,
    own: &Claim,
    request: &LeaseRequest<'_>,
) -> Result<(), Error> {
    let clock = request.clock.as_ref();
    let begun = clock.elapsed();
    for old in numbers(store)?.into_iter().filter(|old| *old < number) {
        let holder: Option<Claim> = read(store, &claim_key(old))?;
        let process = holder.and_then(|holder| holder.process);
        loop {
            let beat: Option<Beat> = read(store, &beat_key(old))?;
            let sight = process.as_ref().zip(own.process.as_ref());
            let is_dead = sight.is_some_and(|(it, here)| it.is_alive(here) == Some(false));
            let is_over = is_dead || beat.is_some_and(|beat| beat.over);
            let is_late = clock.elapsed().saturating_sub(begun) >= PARTING;
            if is_over || is_late || request.stop.load(Ordering::Relaxed) {
                break;
            }
            clock.sleep(LOOK);
        }
    }
    Ok(())
}

/// Removes the claims before `number`, whose holders are over or know that they lost the run by the number alone.
fn clear(store: &dyn Store, number: u64) {
    let Ok(listing) = store.list_files(FOLDER) else {
        return;
    };
    for key in listing.into_iter().map(|meta| meta.key) {
        let name = key.rsplit('/').next().unwrap_or_default();
        let old = name.split('.').next().unwrap_or_default().parse::<u64>();
        if old.is_ok_and(|old| old < number)
            && let Err(error) = store.delete(&key)
        {
            tracing::debug!(key, error = %chain(&error), "an old claim stays");
        }
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
