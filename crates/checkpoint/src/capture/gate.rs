//! How far a capture is, and whoever waits for it.

use crate::Error;
use crate::bytes::Watch;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, PoisonError};
use cairn_device::{Mark, Stream};
use std::collections::BTreeMap;
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
    /// Asked once and then dropped, because it may keep the state alive.
    watch: Mutex<Option<Watch>>,
}

#[derive(Debug, Default)]
struct State {
    /// Every copy is done or in a device's queue, or there will be none.
    issued: bool,
    /// Every byte is in our memory, or there will be none.
    captured: bool,
    /// Behind the last copy of each device.
    marks: BTreeMap<String, Arc<dyn Mark>>,
    /// What the watch said.
    torn: Vec<String>,
    /// How long the capture waited for buffers to come back.
    starved: Duration,
}

impl Gate {
    pub(crate) fn new(watch: Option<Watch>) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            cancelled: AtomicBool::new(false),
            watch: Mutex::new(watch),
        }
    }

    /// Lets waiting fences go: what they wait for is in the devices' queues.
    pub(crate) fn issue(&self, marks: BTreeMap<String, Arc<dyn Mark>>) {
        let mut state = self.lock();
        state.issued = true;
        state.marks = marks;
        self.changed.notify_all();
    }

    /// Says that all bytes are in our memory. Whoever changed the state before that is caught here.
    pub(crate) fn capture(&self) -> Result<(), Vec<String>> {
        self.ask_watch();
        let mut state = self.lock();
        state.captured = true;
        self.changed.notify_all();
        match state.torn.is_empty() {
            true => Ok(()),
            false => Err(state.torn.clone()),
        }
    }

    /// Says that there is nothing more to wait for, because the capture is over, well or not.
    pub(crate) fn end(&self) {
        drop(
            self.watch
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let mut state = self.lock();
        state.issued = true;
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

    /// Waits until the state may change: every copy is done, or the given streams wait for it on their devices.
    pub(crate) fn fence(&self, streams: &[(String, Stream)]) -> Result<Fenced, Error> {
        let begun = Instant::now();
        self.ask_watch();
        let state = self.wait(|state| state.issued);
        for (device, mark) in &state.marks {
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

    /// Asks which tensors changed, once, while none may have. Who comes second waits for the answer: only then may the state change.
    fn ask_watch(&self) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watch.take().filter(|_| !self.is_captured()) {
            let torn = watch.changed();
            self.lock().torn = torn;
        }
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
