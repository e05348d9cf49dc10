//! Where the bytes of a tensor are, and for how long they stay as they are.

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
    /// Memory that stays as it is until [`Saving::fence`](crate::Saving::fence): captured while its owner goes on.
    Fenced(Memory),
}

impl Bytes<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Borrowed(bytes) => bytes.len(),
            Self::Shared(memory) | Self::Fenced(memory) => memory.len(),
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
            Self::Shared(memory) | Self::Fenced(memory) => memory.address(),
        }
    }

    /// The memory that outlives the call, if it is such.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Borrowed(_) => None,
            Self::Shared(memory) | Self::Fenced(memory) => Some(memory),
        }
    }

    /// Whether they may be captured after `save` has returned.
    pub(crate) fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced(_))
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Borrowed(bytes)
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
