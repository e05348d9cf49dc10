//! The threads that speak to services, for callers that wait.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How many threads move bytes between sockets and memory, at least and at most.
const THREADS: (usize, usize) = (2, 8);

/// How far these threads stand back behind others.
const NICENESS: i32 = 10;

/// The runtime, and the process it belongs to: threads do not survive a fork.
static SHARED: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// How long a lock may be held by a thread that lives. One that was held when this process was forked is held for ever.
const LOCKED: Duration = Duration::from_secs(5);

/// The lock, unless a thread holds it that was not forked with the others.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let begun = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() > LOCKED => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The runtime of this process.
pub(super) fn shared() -> io::Result<&'static Runtime> {
    let Some(mut shared) = lock(&SHARED) else {
        return start();
    };
    let here = std::process::id();
    if let Some((process, runtime)) = *shared
        && process == here
    {
        return Ok(runtime);
    }
    let runtime = start()?;
    *shared = Some((here, runtime));
    Ok(runtime)
}

/// Starts a runtime that lives as long as the process.
fn start() -> io::Result<&'static Runtime> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let made = Builder::new_multi_thread()
        .worker_threads(cores.clamp(THREADS.0, THREADS.1))
        .thread_name("cairn-objects")
        .on_thread_start(give_way)
        .enable_all()
        .build()?;
    Ok(Box::leak(Box::new(made)))
}

/// Signing and encrypting must not take processors from a training step.
fn give_way() {
    // On Linux a thread has a priority of its own, under its own number.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
}

/// Runs a future on this thread, whose sockets and timers `runtime` serves. Also inside another runtime, whose thread then waits.
pub(super) fn wait<F: Future>(runtime: &Runtime, future: F) -> F::Output {
    let _inside = runtime.enter();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
