//! Large objects of a simulated store, being written and being read.

use super::SimulatedStore;
use crate::fault::Operation;
use cairn_store::{Error, ObjectReader, ObjectWriter, PutMode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An object on its way.
pub(super) struct SimulatedWriter {
    store: SimulatedStore,
    temp: String,
    key: String,
    len: u64,
    written: AtomicU64,
    published: AtomicBool,
}

impl SimulatedWriter {
    pub(super) fn new(store: SimulatedStore, temp: String, key: &str, len: u64) -> Self {
        Self {
            store,
            temp,
            key: key.to_string(),
            len,
            written: AtomicU64::new(0),
            published: AtomicBool::new(false),
        }
    }
}

impl ObjectWriter for SimulatedWriter {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let start = usize::try_from(offset).expect("simulated objects are small");
        self.store.write(&self.temp, &self.key, start, bytes)?;
        let len = bytes.len() as u64;
        self.written.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let written = self.written.load(Ordering::Relaxed);
        if written != self.len {
            return Err(Error::Incomplete {
                key: self.key.clone(),
                written,
                len: self.len,
            });
        }
        self.store.publish(&self.temp, &self.key, PutMode::Create)?;
        self.published.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn finish_at(mut self: Box<Self>, len: u64) -> Result<(), Error> {
        self.len = len;
        self.finish()
    }
}

impl Drop for SimulatedWriter {
    fn drop(&mut self) {
        if !self.published.load(Ordering::Relaxed) {
            self.store.abandon(&self.temp);
        }
    }
}

/// An object as it was when it was opened.
pub(super) struct SimulatedReader {
    store: SimulatedStore,
    key: String,
    bytes: Vec<u8>,
}

impl SimulatedReader {
    pub(super) fn new(store: SimulatedStore, key: &str, bytes: Vec<u8>) -> Self {
        let key = key.to_string();
        Self { store, key, bytes }
    }
}

impl ObjectReader for SimulatedReader {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.store
            .operate(Operation::Read, "read", &self.key, |_| Ok(()))?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.bytes.get(start..).unwrap_or_default();
        let Some(found) = rest.get(..buffer.len()) else {
            return Err(Error::Truncated {
                key: self.key.clone(),
                offset,
                wanted: buffer.len() as u64,
                got: rest.len() as u64,
            });
        };
        buffer.copy_from_slice(found);
        Ok(())
    }
}
