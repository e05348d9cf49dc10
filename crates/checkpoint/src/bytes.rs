//! Where the bytes of a tensor are, and for how long they stay as they are.

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use cairn_device::Memory;
use std::fmt;
use std::sync::Arc;

/// The bytes of a tensor to save.
#[derive(Debug, Clone)]
pub enum Bytes<'a> {
    /// Memory on the host, borrowed for the time of the call: captured before `save` returns.
    Borrowed(&'a [u8]),
    /// Memory that may change as soon as `save` has returned: on the host it is captured before that, on a device before
    /// anything that its stream is given next.
    Shared(Memory),
    /// Memory that stays as it is until [`Saving::fence`](crate::Saving::fence): captured while its owner goes on. What is changed in
    /// an earlier turn is captured earlier, and [`Saving::fence_turn`](crate::Saving::fence_turn) waits for one turn alone.
    Fenced(Memory, u32),
    /// Memory on the host that somebody else is about to have ready, and that stays as it is from then on: captured when it is.
    Promised(Promise),
    /// Bytes that are not in memory, and stay as they are for as long as somebody holds on to them: read when they are captured.
    Stored(Arc<dyn Stored>),
}

/// Bytes that are not in memory, and stay as they are.
pub trait Stored: fmt::Debug + Send + Sync {
    /// How many there are.
    fn len_bytes(&self) -> usize;

    /// Fills `out` with the bytes at `offset`.
    ///
    /// # Errors
    /// If they cannot be read, and why.
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), String>;
}

impl Bytes<'_> {
    /// Memory that stays as it is until a fence, among all that changes in the first turn.
    pub fn fenced(memory: Memory) -> Self {
        Self::Fenced(memory, 0)
    }

    /// In which turn they may change.
    pub(crate) fn turn(&self) -> u32 {
        match self {
            Self::Fenced(_, turn) => *turn,
            _ => 0,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Borrowed(bytes) => bytes.len(),
            Self::Shared(memory) | Self::Fenced(memory, _) => memory.len(),
            Self::Promised(promise) => promise.len(),
            Self::Stored(stored) => stored.len_bytes(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the first one.
    pub(crate) fn address(&self) -> u64 {
        match self {
            Self::Borrowed(bytes) => bytes.as_ptr().addr() as u64,
            Self::Shared(memory) | Self::Fenced(memory, _) => memory.address(),
            Self::Promised(promise) => promise.address(),
            Self::Stored(stored) => Arc::as_ptr(stored).addr() as u64,
        }
    }

    /// The memory that outlives the call, if it is such.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Borrowed(_) | Self::Promised(_) | Self::Stored(_) => None,
            Self::Shared(memory) | Self::Fenced(memory, _) => Some(memory),
        }
    }

    /// Whether they may be captured after `save` has returned.
    pub(crate) fn can_wait(&self) -> bool {
        matches!(self, Self::Fenced(..)) || self.stays()
    }

    /// Whether they never change, so that no fence waits for them.
    pub(crate) fn stays(&self) -> bool {
        matches!(self, Self::Promised(_) | Self::Stored(_))
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Borrowed(bytes)
    }
}

/// Memory that somebody is about to have ready.
#[derive(Debug, Clone)]
pub struct Promise(Arc<Promised>);

#[derive(Debug)]
struct Promised {
    len: usize,
    kept: Mutex<Option<Result<Memory, String>>>,
    changed: Condvar,
}

impl Promise {
    /// A promise of `len` bytes.
    pub fn new(len: usize) -> Self {
        Self(Arc::new(Promised {
            len,
            kept: Mutex::new(None),
            changed: Condvar::new(),
        }))
    }

    /// How many bytes are promised.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether none are.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the promise, or says why it cannot be kept.
    pub fn keep(&self, memory: Result<Memory, String>) {
        *self.lock() = Some(memory);
        self.0.changed.notify_all();
    }

    /// Waits for the memory.
    pub(crate) fn wait(&self) -> Result<Memory, String> {
        let mut kept = self.lock();
        loop {
            if let Some(kept) = kept.as_ref() {
                return kept.clone();
            }
            let waited = self.0.changed.wait(kept);
            kept = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells promises apart.
    fn address(&self) -> u64 {
        Arc::as_ptr(&self.0).addr() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<Memory, String>>> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asked before a writer says that its part of a save is whole, in the background: a reason ends the save for all writers. It may wait for
/// others, such as ranks that compare what each of them holds.
#[derive(Clone)]
pub struct Condition(Arc<dyn Fn() -> Result<(), String> + Send + Sync>);

impl Condition {
    /// A condition that asks `holds`.
    pub fn new(holds: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        (self.0)()
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Condition")
    }
}

/// Tells which tensors were changed since the state was handed over, by name. It is asked once, when they are captured or a fence is near.
#[derive(Clone)]
pub struct Watch(Arc<dyn Fn() -> Vec<String> + Send + Sync>);

impl Watch {
    /// A watch that asks `changed`.
    pub fn new(changed: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(changed))
    }

    pub(crate) fn changed(&self) -> Vec<String> {
        (self.0)()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Watch")
    }
}
