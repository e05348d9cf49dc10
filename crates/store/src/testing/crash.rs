//! A store that dies at a chosen operation, as a process or a machine does.

mod plan;

pub use plan::{CrashPlan, Effect, Leftovers};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use crate::{
    Error, Location, MAX_GET_BYTES, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store, Upload,
};

/// A store that dies at a chosen operation.
///
/// Counted are `put`, `create`, `write_at`, `finish`, `rename`, `delete` and `sweep`, by all threads together.
/// The one it dies at and everything after it, reads too, fails with [`Error::Crashed`]. What a new
/// process would then find is in the store underneath:
///
/// ```
/// # use std::sync::Arc;
/// # use cairn_store::{Error, Memory, PutMode, Store};
/// # use cairn_store::testing::{CrashPlan, CrashStore};
/// fn save(store: &dyn Store) -> Result<(), Error> {
///     store.put("data", b"bytes", PutMode::Create)?;
///     store.put("COMMIT", b"", PutMode::Create)
/// }
///
/// let rehearsal = CrashStore::counting(Memory::new());
/// save(&rehearsal)?;
/// for plan in CrashPlan::all(rehearsal.operations()) {
///     let disk = Memory::new();
///     assert!(save(&CrashStore::new(disk.clone(), plan)).is_err());
///     assert!(disk.head("COMMIT")?.is_none() || disk.head("data")?.is_some());
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct CrashStore<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    inner: S,
    plan: Option<CrashPlan>,
    operations: AtomicU64,
    /// Whether it is dead. Held for reading by what is going on, so that the death waits for it.
    dead: RwLock<bool>,
    images: Mutex<Vec<Weak<Image>>>,
}

/// The bytes written so far to an object that is not finished.
#[derive(Debug)]
struct Image {
    key: String,
    len: u64,
    pieces: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl<S: Store> CrashStore<S> {
    /// A store that dies as planned.
    pub fn new(inner: S, plan: CrashPlan) -> Self {
        Self::with_plan(inner, Some(plan))
    }

    /// A store that never dies, to count the operations of a run.
    pub fn counting(inner: S) -> Self {
        Self::with_plan(inner, None)
    }

    fn with_plan(inner: S, plan: Option<CrashPlan>) -> Self {
        Self {
            shared: Arc::new(Shared {
                inner,
                plan,
                operations: AtomicU64::new(0),
                dead: RwLock::new(false),
                images: Mutex::new(Vec::new()),
            }),
        }
    }

    /// How many operations were begun.
    pub fn operations(&self) -> u64 {
        self.shared.operations.load(Ordering::SeqCst)
    }

    /// Whether it has died.
    pub fn has_crashed(&self) -> bool {
        self.shared.alive().is_err()
    }

    /// The store underneath: the disk as the next process finds it.
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }
}

impl<S: Store> Shared<S> {
    /// Runs one counted operation, all of it or what the plan says.
    fn run<T>(
        &self,
        half: impl FnOnce(),
        full: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let number = self.operations.fetch_add(1, Ordering::SeqCst);
        let Some(plan) = self.plan.filter(|plan| number >= plan.at) else {
            let _alive = self.alive()?;
            return full();
        };
        if number == plan.at {
            let mut dead = self.dead.write().unwrap_or_else(PoisonError::into_inner);
            *dead = true;
            // Held until the end, because an object that is just created becomes a leftover.
            let _lost_answer = match plan.effect {
                Effect::None => None,
                Effect::Half => {
                    half();
                    None
                }
                Effect::Full => Some(full()),
            };
            self.leave(plan.leftovers);
        }
        Err(Error::Crashed)
    }

    /// Lets an operation go on while it holds the answer.
    fn alive(&self) -> Result<RwLockReadGuard<'_, bool>, Error> {
        let dead = self.dead.read().unwrap_or_else(PoisonError::into_inner);
        if *dead {
            return Err(Error::Crashed);
        }
        Ok(dead)
    }

    fn images(&self) -> MutexGuard<'_, Vec<Weak<Image>>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what is found of the objects that are still open.
    fn leave(&self, leftovers: Leftovers) {
        for image in self.images().iter().filter_map(Weak::upgrade) {
            let len = match leftovers {
                Leftovers::Gone => return,
                Leftovers::Partial => image.len / 2,
                Leftovers::Zeroed => image.len,
            };
            if let Some(bytes) = image.bytes(len) {
                // If another writer has published this object, there it stays.
                let _ = self.inner.put(&image.key, &bytes, PutMode::Create);
            }
        }
    }
}

impl Image {
    fn write(&self, offset: u64, bytes: &[u8]) {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.insert(offset, bytes.to_vec());
    }

    /// The first `len` bytes, or `None` if that is more than tests should hold in memory.
    fn bytes(&self, len: u64) -> Option<Vec<u8>> {
        if len > MAX_GET_BYTES {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        for (offset, piece) in pieces.range(..len) {
            let target = &mut bytes[usize::try_from(*offset).ok()?..];
            let len = piece.len().min(target.len());
            target[..len].copy_from_slice(&piece[..len]);
        }
        Some(bytes)
    }
}

impl<S: Store + 'static> CrashStore<S> {
    /// Begins an object of at most `len` bytes, which `create` makes underneath.
    fn begin(
        &self,
        key: &str,
        len: u64,
        create: impl FnOnce(&S) -> Result<Box<dyn ObjectWriter>, Error>,
    ) -> Result<Box<dyn ObjectWriter>, Error> {
        let shared = &self.shared;
        let begin = || {
            let inner = create(&shared.inner)?;
            let image = Arc::new(Image {
                key: key.to_owned(),
                len,
                pieces: Mutex::default(),
            });
            shared.images().push(Arc::downgrade(&image));
            Ok(CrashWriter {
                shared: Arc::clone(shared),
                inner,
                image,
            })
        };
        Ok(Box::new(shared.run(|| {}, begin)?))
    }
}

impl<S: Store> CrashWriter<S> {
    /// Ends the object as `end` does.
    fn end(
        self,
        end: impl FnOnce(Box<dyn ObjectWriter>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Self {
            shared,
            inner,
            image,
        } = self;
        let finished = shared.run(|| {}, || end(inner));
        // Not earlier: it is a leftover if the store dies before it is finished.
        drop(image);
        finished
    }
}

impl<S: Store + 'static> Store for CrashStore<S> {
    fn url(&self) -> String {
        self.shared.inner.url()
    }

    fn locations(&self, key: &str) -> Vec<Location> {
        self.shared.inner.locations(key)
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        let shared = &self.shared;
        shared.run(|| {}, || shared.inner.put(key, bytes, mode))
    }

    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        self.begin(key, len, |inner| inner.create(key, len))
    }

    fn create_up_to(&self, key: &str, most: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        self.begin(key, most, |inner| inner.create_up_to(key, most))
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        let _alive = self.shared.alive()?;
        Ok(Box::new(CrashReader {
            shared: Arc::clone(&self.shared),
            inner: self.shared.inner.reader(key)?,
        }))
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        let _alive = self.shared.alive()?;
        self.shared.inner.head(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        let _alive = self.shared.alive()?;
        self.shared.inner.list(prefix)
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let _alive = self.shared.alive()?;
        self.shared.inner.list_folders(prefix)
    }

    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        let shared = &self.shared;
        shared.run(|| {}, || shared.inner.rename(key, to, mode))
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        let shared = &self.shared;
        shared.run(|| {}, || shared.inner.delete(key))
    }

    fn settle(&self, prefix: &str) -> Result<(), Error> {
        let _alive = self.shared.alive()?;
        self.shared.inner.settle(prefix)
    }

    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        let shared = &self.shared;
        shared.run(|| {}, || shared.inner.sweep(prefix))
    }

    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        let _alive = self.shared.alive()?;
        self.shared.inner.available_bytes()
    }

    fn has_one_winner(&self) -> Result<bool, Error> {
        let _alive = self.shared.alive()?;
        self.shared.inner.has_one_winner()
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<Upload>, Error> {
        let _alive = self.shared.alive()?;
        self.shared.inner.uploads(prefix)
    }

    fn abort(&self, upload: &Upload) -> Result<(), Error> {
        let shared = &self.shared;
        shared.run(|| {}, || shared.inner.abort(upload))
    }
}

struct CrashWriter<S> {
    shared: Arc<Shared<S>>,
    inner: Box<dyn ObjectWriter>,
    image: Arc<Image>,
}

impl<S: Store> ObjectWriter for CrashWriter<S> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let half = || self.image.write(offset, &bytes[..bytes.len() / 2]);
        let full = || {
            self.inner.write_at(offset, bytes)?;
            self.image.write(offset, bytes);
            Ok(())
        };
        self.shared.run(half, full)
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        (*self).end(|inner| inner.finish())
    }

    fn finish_at(self: Box<Self>, len: u64) -> Result<(), Error> {
        (*self).end(|inner| inner.finish_at(len))
    }
}

struct CrashReader<S> {
    shared: Arc<Shared<S>>,
    inner: Box<dyn ObjectReader>,
}

impl<S: Store> ObjectReader for CrashReader<S> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn gap_bytes(&self) -> u64 {
        self.inner.gap_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let _alive = self.shared.alive()?;
        self.inner.read_at(offset, buffer)
    }
}
