//! Which operations are disturbed, and how.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::Error;
#[cfg(doc)]
use crate::{ObjectReader, ObjectWriter, Store};

/// What a [`Rule`] can disturb.
///
/// `get` and `get_prefix` are an [`Open`](Operation::Open) and a [`Read`](Operation::Read).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// [`Store::put`]
    Put,
    /// [`Store::create`]
    Create,
    /// [`ObjectWriter::write_at`]
    Write,
    /// [`ObjectWriter::finish`]
    Finish,
    /// [`Store::reader`]
    Open,
    /// [`ObjectReader::read_at`]
    Read,
    /// [`Store::head`]
    Head,
    /// [`Store::list`] and [`Store::list_folders`]; the key is the prefix.
    List,
    /// [`Store::rename`]; the key is the old one.
    Rename,
    /// [`Store::delete`]
    Delete,
    /// [`Store::sweep`]; the key is the prefix.
    Sweep,
}

/// What happens to a disturbed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It fails with this error number of the operating system, and has no effect.
    Fail(i32),
    /// It takes effect, and then fails with this error number: the answer is lost.
    ///
    /// Meant for what is published or deleted; stores never lose a [`Write`](Operation::Write) so.
    FailAfter(i32),
    /// It waits this long first.
    Stall(Duration),
    /// A [`Read`](Operation::Read) that covers the byte at `offset` finds this bit of it flipped.
    FlipBit {
        /// Which byte of the object.
        offset: u64,
        /// Which bit of it, from 0 to 7.
        bit: u8,
    },
    /// An [`Open`](Operation::Open) or [`Head`](Operation::Head) finds at most so many bytes.
    Truncate {
        /// The length that is left.
        len: u64,
    },
    /// A [`List`](Operation::List) finds nothing, as where listings come late.
    Lag,
}

impl Fault {
    /// The disk is full.
    pub const NO_SPACE: Self = Self::Fail(Errno::NOSPC.raw_os_error());
    /// The device reports an error.
    pub const IO: Self = Self::Fail(Errno::IO.raw_os_error());
    /// This user may not do that.
    pub const DENIED: Self = Self::Fail(Errno::ACCESS.raw_os_error());
    /// The file system is mounted read-only.
    pub const READ_ONLY: Self = Self::Fail(Errno::ROFS.raw_os_error());
    /// The service did not answer in time; trying again may help.
    pub const TIMED_OUT: Self = Self::Fail(Errno::TIMEDOUT.raw_os_error());
}

/// Which operations are disturbed, and how.
#[derive(Debug, Clone)]
pub struct Rule {
    operations: Vec<Operation>,
    key_part: String,
    nth: Option<u64>,
    fault: Fault,
    matches: u64,
}

impl Rule {
    /// Disturbs each of these operations, on any key.
    pub fn new(operations: impl IntoIterator<Item = Operation>, fault: Fault) -> Self {
        Self {
            operations: operations.into_iter().collect(),
            key_part: String::new(),
            nth: None,
            fault,
            matches: 0,
        }
    }

    /// Only on keys that contain `part`.
    #[must_use]
    pub fn on(mut self, part: &str) -> Self {
        part.clone_into(&mut self.key_part);
        self
    }

    /// Only the n-th of the operations that match, counted from 0.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = Some(nth);
        self
    }

    /// Counts the operation if it matches, and returns the fault if it is to be disturbed.
    fn meet(&mut self, operation: Operation, key: &str) -> Option<Fault> {
        if !self.operations.contains(&operation) || !key.contains(&self.key_part) {
            return None;
        }
        let number = self.matches;
        self.matches += 1;
        self.nth
            .is_none_or(|nth| nth == number)
            .then_some(self.fault)
    }
}

/// The rules of one store.
#[derive(Debug, Default)]
pub(super) struct Rules {
    all: Mutex<Vec<Rule>>,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

impl Rules {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Runs one operation of `len` bytes as the rules want it; it is told its faults.
    pub(super) fn run<T>(
        &self,
        operation: Operation,
        key: &str,
        len: u64,
        action: impl FnOnce(&[Fault]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(under_way, Ordering::Relaxed);
        let done = self.disturb(operation, key, len, action);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        done
    }

    fn disturb<T>(
        &self,
        operation: Operation,
        key: &str,
        len: u64,
        action: impl FnOnce(&[Fault]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let faults: Vec<Fault> = self
            .lock()
            .iter_mut()
            .filter_map(|rule| rule.meet(operation, key))
            .collect();
        for fault in &faults {
            match *fault {
                Fault::Stall(duration) => std::thread::sleep(duration),
                Fault::Fail(errno) => return Err(failure(operation, key, len, errno)),
                _ => {}
            }
        }
        let done = action(&faults)?;
        for fault in &faults {
            if let Fault::FailAfter(errno) = *fault {
                return Err(failure(operation, key, len, errno));
            }
        }
        Ok(done)
    }
}

fn failure(operation: Operation, key: &str, len: u64, errno: i32) -> Error {
    let error = io::Error::from_raw_os_error(errno);
    if error.kind() == io::ErrorKind::StorageFull {
        return Error::NoSpace {
            key: key.to_owned(),
            needed: len,
            available: 0,
        };
    }
    let operation = match operation {
        Operation::Put | Operation::Write => "write",
        Operation::Create => "create",
        Operation::Finish => "publish",
        Operation::Open => "open",
        Operation::Read => "read",
        Operation::Head => "describe",
        Operation::List => "list",
        Operation::Rename => "rename",
        Operation::Delete => "delete",
        Operation::Sweep => "sweep",
    };
    Error::from_io(key, operation, error)
}
