//! Ranks as threads of this process, which read each other's memory.

mod group;
mod mail;

use crate::Communicator;
use group::{Group, Member};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What can be chosen for ranks that are threads.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a call waits for the others.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(600),
        }
    }
}

/// Runs `body` once for each of `size` ranks, each on a thread, and returns what they return, in order.
///
/// # Errors
/// The error of the rank that ended the group. Calls of the others end with it.
///
/// # Panics
/// As that rank, if it panics.
pub fn run<R: Send, E: Send + Display>(
    size: usize,
    options: Options,
    body: impl Fn(Arc<dyn Communicator>) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let world = Group::world(size, options.timeout);
    let failures: Mutex<BTreeMap<usize, Failure<E>>> = Mutex::default();
    let rank = |rank: usize| {
        let member: Arc<dyn Communicator> = Arc::new(Member::new(world.clone(), rank));
        let (reason, failure) = match catch_unwind(AssertUnwindSafe(|| body(member.clone()))) {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => (
                format!("rank {rank} failed: {error}"),
                Failure::Error(error),
            ),
            Err(panic) => (
                format!("rank {rank} panicked: {}", message(&panic)),
                Failure::Panic(panic),
            ),
        };
        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.insert(rank, failure);
        drop(failures);
        member.end(&reason);
        None
    };
    let answers: Vec<Option<R>> = thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = (0..size)
            .map(|number| scope.spawn(move || rank(number)))
            .collect();
        let joined = ranks.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|answer| answer.unwrap_or_default()).collect()
    });
    let failures = failures.into_inner();
    let mut failures = failures.unwrap_or_else(PoisonError::into_inner);
    // What the others say follows from what that one did.
    let cause = world.ended_by().and_then(|rank| failures.remove(&rank));
    match cause.or_else(|| failures.into_values().next()) {
        None => Ok(answers.into_iter().flatten().collect()),
        Some(Failure::Error(error)) => Err(error),
        Some(Failure::Panic(panic)) => resume_unwind(panic),
    }
}

/// How a rank failed.
enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

fn message(panic: &Box<dyn Any + Send>) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message")
}

/// The places of a group whose ranks the caller makes threads itself.
pub fn members(size: usize, options: &Options) -> Vec<Arc<dyn Communicator>> {
    let world = Group::world(size, options.timeout);
    (0..size)
        .map(|rank| Arc::new(Member::new(world.clone(), rank)) as Arc<dyn Communicator>)
        .collect()
}
