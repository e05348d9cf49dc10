//! A store in memory, for tests and for state that need not outlive the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use crate::coverage::Coverage;
use crate::{Error, Location, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store, key};

/// A store in memory; clones share their objects.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    objects: Arc<RwLock<BTreeMap<String, Object>>>,
}

#[derive(Debug, Clone)]
struct Object {
    bytes: Arc<Vec<u8>>,
    modified: SystemTime,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn object(&self, key: &str) -> Result<Option<Object>, Error> {
        key::check(key)?;
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        Ok(objects.get(key).cloned())
    }

    fn publish(&self, key: &str, bytes: Vec<u8>, mode: PutMode) -> Result<(), Error> {
        let object = Object {
            bytes: Arc::new(bytes),
            modified: SystemTime::now(),
        };
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        if mode == PutMode::Create && objects.contains_key(key) {
            return Err(Error::AlreadyExists {
                key: key.to_owned(),
            });
        }
        objects.insert(key.to_owned(), object);
        Ok(())
    }
}

impl Store for Memory {
    fn url(&self) -> String {
        "memory:".to_owned()
    }

    fn locations(&self, key: &str) -> Vec<Location> {
        let url = format!("memory:{:p}", Arc::as_ptr(&self.objects));
        vec![Location::named(&url, key)]
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        key::check(key)?;
        self.publish(key, bytes.to_vec(), mode)
    }

    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        if self.object(key)?.is_some() {
            return Err(Error::AlreadyExists {
                key: key.to_owned(),
            });
        }
        Ok(Box::new(MemoryWriter {
            store: self.clone(),
            key: key.to_owned(),
            written: Mutex::new(Written {
                coverage: Coverage::new(key, len),
                pieces: BTreeMap::new(),
            }),
        }))
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        let object = self.object(key)?.ok_or_else(|| Error::NotFound {
            key: key.to_owned(),
        })?;
        Ok(Box::new(MemoryReader {
            key: key.to_owned(),
            bytes: object.bytes,
        }))
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        let object = self.object(key)?;
        Ok(object.map(|object| describe(key, &object)))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        key::check_prefix(prefix)?;
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        Ok(objects
            .iter()
            .filter(|(key, _)| inside(key, prefix).is_some())
            .map(|(key, object)| describe(key, object))
            .collect())
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        key::check_prefix(prefix)?;
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let folders: BTreeSet<&str> = objects
            .keys()
            .filter_map(|key| inside(key, prefix)?.split_once('/'))
            .map(|(folder, _)| folder)
            .collect();
        Ok(folders.into_iter().map(str::to_owned).collect())
    }

    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        key::check(key)?;
        key::check(to)?;
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        if !objects.contains_key(key) {
            return Err(Error::NotFound {
                key: key.to_owned(),
            });
        }
        if mode == PutMode::Create && objects.contains_key(to) {
            return Err(Error::AlreadyExists { key: to.to_owned() });
        }
        if let Some(object) = objects.remove(key) {
            objects.insert(to.to_owned(), object);
        }
        Ok(())
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        key::check(key)?;
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.remove(key);
        Ok(())
    }

    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        key::check_prefix(prefix)?;
        Ok(0)
    }

    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}

/// The part of `key` below the folder `prefix`, if it is there.
fn inside<'key>(key: &'key str, prefix: &str) -> Option<&'key str> {
    if prefix.is_empty() {
        return Some(key);
    }
    key.strip_prefix(prefix)?.strip_prefix('/')
}

fn describe(key: &str, object: &Object) -> ObjectMeta {
    ObjectMeta {
        key: key.to_owned(),
        len: object.bytes.len() as u64,
        modified: object.modified,
    }
}

struct MemoryWriter {
    store: Memory,
    key: String,
    written: Mutex<Written>,
}

/// Memory is taken for pieces as they come, so that an object of absurd length costs nothing.
struct Written {
    coverage: Coverage,
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl MemoryWriter {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectWriter for MemoryWriter {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.written().coverage.claim(offset, bytes.len() as u64)?;
        if !bytes.is_empty() {
            let piece = bytes.to_vec();
            self.written().pieces.insert(offset, piece);
        }
        Ok(())
    }

    fn finish_at(self: Box<Self>, len: u64) -> Result<(), Error> {
        self.written().coverage.end_at(len)?;
        self.finish()
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let Written { coverage, pieces } = self
            .written
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        coverage.check_complete()?;
        let bytes = pieces.into_values().collect::<Vec<_>>().concat();
        self.store.publish(&self.key, bytes, PutMode::Create)
    }
}

struct MemoryReader {
    key: String,
    bytes: Arc<Vec<u8>>,
}

impl ObjectReader for MemoryReader {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.bytes.get(start..).unwrap_or_default();
        let Some(wanted) = rest.get(..buffer.len()) else {
            return Err(Error::Truncated {
                key: self.key.clone(),
                offset,
                wanted: buffer.len() as u64,
                got: rest.len() as u64,
            });
        };
        buffer.copy_from_slice(wanted);
        Ok(())
    }
}
