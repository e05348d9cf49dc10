//! How far a capture is, and whoever waits for it.

use super::turns::Turns;
use crate::Error;
use crate::bytes::{Condition, Watch};
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, PoisonError};
use cairn_device::{Mark, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a fence did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fenced {
    /// How long it held its caller.
    pub waited: Duration,
    /// Why it did, if that was long enough to ask.
    pub reason: Option<String>,
}

/// Shorter waits need no explanation.
const NOTABLE: Duration = Duration::from_millis(1);

/// How far the capture of a save is.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    cancelled: AtomicBool,
    watched: Mutex<Watched>,
    /// What must hold before this writer's part counts, and the step.
    condition: Mutex<Option<(u64, Condition)>>,
}

/// Who is asked what changed too early.
#[derive(Debug)]
struct Watched {
    /// Dropped as soon as it is not needed, because it may keep the state alive.
    watch: Option<Watch>,
    turns: Turns,
    /// The turns that have come: what they change is no longer too early.
    passed: BTreeSet<u32>,
}

/// A mark behind the last copy of each device.
type Marks = BTreeMap<String, Arc<dyn Mark>>;

#[derive(Debug, Default)]
struct State {
    /// The turns of which every copy is done or in a device's queue.
    issued: BTreeMap<u32, Marks>,
    /// That is so of every turn, or there will be no more copies.
    issued_all: bool,
    /// Behind everything that was issued.
    marks: Marks,
    /// Every byte is in our memory, or there will be none.
    captured: bool,
    /// What the watch said.
    torn: BTreeSet<String>,
    /// How long the capture waited for buffers to come back.
    starved: Duration,
}

impl Gate {
    /// A capture of tensors that change in these turns.
    pub(crate) fn new(watch: Option<Watch>, turns: Turns) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            cancelled: AtomicBool::new(false),
            watched: Mutex::new(Watched {
                watch,
                turns,
                passed: BTreeSet::new(),
            }),
            condition: Mutex::new(None),
        }
    }

    /// The same, for a part of `step` that counts if a condition holds.
    pub(crate) fn with_condition(self, step: u64, condition: Option<Condition>) -> Self {
        let condition = Mutex::new(condition.map(|condition| (step, condition)));
        Self { condition, ..self }
    }

    /// Asks for the condition, once; it may wait.
    pub(crate) fn meet(&self) -> Result<(), Error> {
        let asked = {
            let condition = self.condition.lock();
            condition.unwrap_or_else(PoisonError::into_inner).take()
        };
        let Some((step, condition)) = asked else {
            return Ok(());
        };
        let checked = condition.check();
        checked.map_err(|reason| Error::Disagreement { step, reason })
    }

    /// Lets fences of `turns` go: what they wait for is in the devices' queues, before `marks`.
    pub(crate) fn issue(&self, turns: &BTreeSet<u32>, marks: &Marks) {
        let mut state = self.lock();
        let issued = turns.iter().map(|turn| (*turn, marks.clone()));
        state.issued.extend(issued);
        state.marks.clone_from(marks);
        self.changed.notify_all();
    }

    /// Lets every fence go.
    pub(crate) fn issue_all(&self) {
        self.lock().issued_all = true;
        self.changed.notify_all();
    }

    /// Says that all bytes are in our memory. Whoever changed the state before that is caught here.
    pub(crate) fn capture(&self) -> Result<(), Vec<String>> {
        self.ask_watch(|watched| watched.watch = None);
        let mut state = self.lock();
        state.captured = true;
        self.changed.notify_all();
        match state.torn.is_empty() {
            true => Ok(()),
            false => Err(state.torn.iter().cloned().collect()),
        }
    }

    /// Says that there is nothing more to wait for, because the capture is over, well or not.
    pub(crate) fn end(&self) {
        self.watched().watch = None;
        let mut state = self.lock();
        state.issued_all = true;
        state.captured = true;
        self.changed.notify_all();
    }

    /// Counts time that the capture spent waiting for memory.
    pub(crate) fn starve(&self, waited: Duration) {
        self.lock().starved += waited;
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.lock().captured
    }

    /// Asks the capture and the writer to stop.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Waits until every byte is in our memory.
    pub(crate) fn wait_captured(&self) {
        drop(self.wait(|state| state.captured));
    }

    /// Waits until the state may change, or what changes in one turn: every copy is done, or the given streams wait for it on their
    /// devices.
    pub(crate) fn fence(
        &self,
        turn: Option<u32>,
        streams: &[(String, Stream)],
    ) -> Result<Fenced, Error> {
        let begun = Instant::now();
        self.ask_watch(|watched| match turn {
            Some(turn) => drop(watched.passed.insert(turn)),
            None => watched.watch = None,
        });
        let is_issued = |state: &State, turn| state.issued.contains_key(&turn);
        let state =
            self.wait(|state| state.issued_all || turn.is_some_and(|turn| is_issued(state, turn)));
        let marks = turn.and_then(|turn| state.issued.get(&turn));
        for (device, mark) in marks.unwrap_or(&state.marks) {
            let same = streams.iter().filter(|(name, _)| name == device);
            for (_, stream) in same {
                mark.hold(*stream)
                    .map_err(|source| Error::Capture { source })?;
            }
        }
        let waited = begun.elapsed();
        let reason = (waited >= NOTABLE).then(|| match state.starved {
            Duration::ZERO => "the copy was not in the device's queue yet".to_string(),
            starved => format!(
                "the capture waited {:.1} s for staging memory to be written: allow more of it",
                starved.as_secs_f64()
            ),
        });
        Ok(Fenced { waited, reason })
    }

    /// Asks which tensors changed whose turn has not come, and then lets one come. Who comes second waits for the answer: only then may
    /// the state change.
    fn ask_watch(&self, then: impl FnOnce(&mut Watched)) {
        let mut watched = self.watched();
        if let Some(watch) = watched.watch.as_ref().filter(|_| !self.is_captured()) {
            let early = |name: &String| !watched.passed.contains(&watched.turns.turn(name));
            let torn = watch.changed().into_iter().filter(early);
            self.lock().torn.extend(torn);
        }
        then(&mut watched);
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while !until(&state) {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
