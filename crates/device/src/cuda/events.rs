//! Events of the driver, as marks.

use super::context::Cuda;
use crate::Error;
use crate::device::{Mark, Stream};
use cudarc::driver::sys::{self, CUevent, CUstream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Waiting threads sleep instead of asking again and again.
const BLOCKING_SYNC: u32 = 1;

/// Events that are nobody's, to be used again: making one takes longer than recording it.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Vec<Handle>>);

#[derive(Debug)]
struct Handle(CUevent);

// SAFETY: events of the driver may be used from every thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// An event that was recorded.
#[derive(Debug)]
pub(super) struct Event {
    cuda: Arc<Cuda>,
    handle: Option<Handle>,
}

impl Event {
    /// Records an event behind everything `stream` was given so far.
    pub(super) fn record(cuda: &Arc<Cuda>, stream: CUstream) -> Result<Self, Error> {
        let known = cuda.events.lock().pop();
        let handle = match known {
            Some(handle) => handle,
            None => Self::make(cuda)?,
        };
        let event = handle.0;
        // SAFETY: the event is ours, and the caller's stream lives.
        cuda.call("record an event", || unsafe {
            sys::cuEventRecord(event, stream)
        })?;
        Ok(Self {
            cuda: cuda.clone(),
            handle: Some(handle),
        })
    }

    fn make(cuda: &Cuda) -> Result<Handle, Error> {
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle.
        cuda.call("make an event", || unsafe {
            sys::cuEventCreate(&mut event, BLOCKING_SYNC)
        })?;
        Ok(Handle(event))
    }

    /// Makes `stream` wait for it, on the device.
    pub(super) fn hold_stream(&self, stream: CUstream) -> Result<(), Error> {
        let event = self.event();
        // SAFETY: event and stream live.
        self.cuda.call("make a stream wait", || unsafe {
            sys::cuStreamWaitEvent(stream, event, 0)
        })
    }

    fn event(&self) -> CUevent {
        let handle = self.handle.as_ref();
        handle.expect("only `drop` takes it").0
    }
}

impl Events {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Handle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mark for Event {
    fn wait(&self) -> Result<(), Error> {
        let event = self.event();
        // SAFETY: the event lives.
        self.cuda.call("copy to the host", || unsafe {
            sys::cuEventSynchronize(event)
        })
    }

    fn hold(&self, stream: Stream) -> Result<(), Error> {
        self.hold_stream(handle_of(stream))
    }

    fn since(&self, earlier: &dyn Mark) -> Option<Duration> {
        let earlier = earlier.as_any().downcast_ref::<Self>()?.event();
        let (mut elapsed_ms, event) = (0.0_f32, self.event());
        // SAFETY: both events live; it writes one number.
        let asked = self.cuda.call("read a clock", || unsafe {
            sys::cuEventElapsedTime(&mut elapsed_ms, earlier, event)
        });
        asked.ok()?;
        Duration::try_from_secs_f32(elapsed_ms / 1e3).ok()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.cuda.events.lock().push(handle);
        }
    }
}

/// A framework's stream, by the number it gives.
pub(super) fn handle_of(stream: Stream) -> CUstream {
    usize::try_from(stream.0).expect("a handle has the width of an address") as CUstream
}
