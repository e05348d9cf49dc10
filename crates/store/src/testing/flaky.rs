//! A store that fails, stalls or lies where a test says so.

use std::sync::Arc;

use crate::{Error, Location, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store, Upload};

mod rule;

use rule::Rules;
pub use rule::{Fault, Operation, Rule};

/// A store that fails, stalls or lies by rules, which can be added while it is used.
///
/// ```
/// # use cairn_store::{Error, Memory, PutMode, Store};
/// # use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
/// let store = FlakyStore::new(Memory::new());
/// store.add(Rule::new([Operation::Put], Fault::NO_SPACE).on("COMMIT").nth(0));
/// let failed = store.put("COMMIT", b"{}", PutMode::Create);
/// assert!(matches!(failed, Err(Error::NoSpace { needed: 2, .. })));
/// store.put("COMMIT", b"{}", PutMode::Create)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct FlakyStore<S> {
    inner: S,
    rules: Arc<Rules>,
    is_far: bool,
}

impl<S: Store> FlakyStore<S> {
    /// A store without rules, which works.
    pub fn new(inner: S) -> Self {
        Self {
            is_far: inner.is_far(),
            inner,
            rules: Arc::default(),
        }
    }

    /// As [`new`](Self::new), and [far](Store::is_far).
    pub fn far(inner: S) -> Self {
        Self {
            is_far: true,
            ..Self::new(inner)
        }
    }

    /// The most operations on one store that were under way at the same time.
    pub fn most_at_once(&self) -> usize {
        self.rules.most_at_once()
    }

    /// Adds a rule, which counts operations from now on.
    pub fn add(&self, rule: Rule) {
        self.rules.lock().push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.rules.lock().clear();
    }

    fn writer(&self, inner: Box<dyn ObjectWriter>, key: &str, len: u64) -> Box<dyn ObjectWriter> {
        Box::new(FlakyWriter {
            inner,
            rules: Arc::clone(&self.rules),
            key: key.to_owned(),
            len,
        })
    }

    /// The store underneath, which works.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

/// What is left of `len` bytes.
fn truncated(len: u64, faults: &[Fault]) -> u64 {
    faults.iter().fold(len, |len, fault| match *fault {
        Fault::Truncate { len: left } => len.min(left),
        _ => len,
    })
}

impl<S: Store> Store for FlakyStore<S> {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn locations(&self, key: &str) -> Vec<Location> {
        self.inner.locations(key)
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        let len = bytes.len() as u64;
        self.rules.run(Operation::Put, key, len, |_| {
            self.inner.put(key, bytes, mode)
        })
    }

    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        let create = |_: &[Fault]| self.inner.create(key, len);
        let inner = self.rules.run(Operation::Create, key, len, create)?;
        Ok(self.writer(inner, key, len))
    }

    fn create_up_to(&self, key: &str, most: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        let create = |_: &[Fault]| self.inner.create_up_to(key, most);
        let inner = self.rules.run(Operation::Create, key, 0, create)?;
        Ok(self.writer(inner, key, most))
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        let open = |faults: &[Fault]| {
            let inner = self.inner.reader(key)?;
            let len = truncated(inner.len(), faults);
            Ok((inner, len))
        };
        let (inner, len) = self.rules.run(Operation::Open, key, 0, open)?;
        Ok(Box::new(FlakyReader {
            inner,
            rules: Arc::clone(&self.rules),
            key: key.to_owned(),
            len,
        }))
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        self.rules.run(Operation::Head, key, 0, |faults| {
            let found = self.inner.head(key)?;
            Ok(found.map(|meta| ObjectMeta {
                len: truncated(meta.len, faults),
                ..meta
            }))
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        let list = |faults: &[Fault]| match faults.contains(&Fault::Lag) {
            true => Ok(Vec::new()),
            false => self.inner.list(prefix),
        };
        self.rules.run(Operation::List, prefix, 0, list)
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let list = |faults: &[Fault]| match faults.contains(&Fault::Lag) {
            true => Ok(Vec::new()),
            false => self.inner.list_folders(prefix),
        };
        self.rules.run(Operation::List, prefix, 0, list)
    }

    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        let rename = |_: &[Fault]| self.inner.rename(key, to, mode);
        self.rules.run(Operation::Rename, key, 0, rename)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        let delete = |_: &[Fault]| self.inner.delete(key);
        self.rules.run(Operation::Delete, key, 0, delete)
    }

    fn settle(&self, prefix: &str) -> Result<(), Error> {
        self.inner.settle(prefix)
    }

    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        let sweep = |_: &[Fault]| self.inner.sweep(prefix);
        self.rules.run(Operation::Sweep, prefix, 0, sweep)
    }

    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        self.inner.available_bytes()
    }

    fn has_one_winner(&self) -> Result<bool, Error> {
        self.inner.has_one_winner()
    }

    fn is_linked(&self, prefix: &str) -> Result<bool, Error> {
        self.inner.is_linked(prefix)
    }

    fn is_far(&self) -> bool {
        self.is_far
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<Upload>, Error> {
        self.inner.uploads(prefix)
    }

    fn abort(&self, upload: &Upload) -> Result<(), Error> {
        self.inner.abort(upload)
    }
}

struct FlakyWriter {
    inner: Box<dyn ObjectWriter>,
    rules: Arc<Rules>,
    key: String,
    len: u64,
}

impl ObjectWriter for FlakyWriter {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let len = bytes.len() as u64;
        let write = |_: &[Fault]| self.inner.write_at(offset, bytes);
        self.rules.run(Operation::Write, &self.key, len, write)
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let Self {
            inner,
            rules,
            key,
            len,
        } = *self;
        rules.run(Operation::Finish, &key, len, |_| inner.finish())
    }

    fn finish_at(self: Box<Self>, len: u64) -> Result<(), Error> {
        let Self {
            inner, rules, key, ..
        } = *self;
        rules.run(Operation::Finish, &key, len, |_| inner.finish_at(len))
    }
}

struct FlakyReader {
    inner: Box<dyn ObjectReader>,
    rules: Arc<Rules>,
    key: String,
    len: u64,
}

impl ObjectReader for FlakyReader {
    fn len(&self) -> u64 {
        self.len
    }

    fn gap_bytes(&self) -> u64 {
        self.inner.gap_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let wanted = buffer.len() as u64;
        let rest = self.len.saturating_sub(offset);
        self.rules
            .run(Operation::Read, &self.key, wanted, |faults| {
                if wanted > rest {
                    return Err(Error::Truncated {
                        key: self.key.clone(),
                        offset,
                        wanted,
                        got: rest,
                    });
                }
                self.inner.read_at(offset, buffer)?;
                for fault in faults {
                    flip(fault, offset, buffer);
                }
                Ok(())
            })
    }
}

/// Damages what was read at `start`, if this fault does that there.
fn flip(fault: &Fault, start: u64, buffer: &mut [u8]) {
    if let Fault::FlipBit { offset, bit } = *fault {
        let index = offset.checked_sub(start).and_then(|at| at.try_into().ok());
        if let Some(byte) = index.and_then(|index: usize| buffer.get_mut(index)) {
            *byte ^= 1 << (bit % 8);
        }
    }
}
