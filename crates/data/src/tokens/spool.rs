//! Bytes that wait until their place in a file is known.

use crate::Error;
use crate::file::failed;
use cairn_store::{PutMode, Store};
use std::sync::Arc;

/// How many bytes wait in memory before they are put aside.
const PART_BYTES: usize = 8 << 20;

/// Bytes in the order they came, the most of them put aside in the store as parts.
#[derive(Debug)]
pub(super) struct Spool {
    store: Arc<dyn Store>,
    folder: String,
    parts: u64,
    /// What came after the last part.
    rest: Vec<u8>,
}

impl Spool {
    /// A spool whose parts lie in `folder`, where none may be yet.
    pub(super) fn new(store: &Arc<dyn Store>, folder: String) -> Self {
        Self {
            store: store.clone(),
            folder,
            parts: 0,
            rest: Vec::new(),
        }
    }

    /// How many bytes have come.
    pub(super) fn len_bytes(&self) -> u64 {
        self.parts * PART_BYTES as u64 + self.rest.len() as u64
    }

    /// Takes more bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.rest.extend_from_slice(bytes);
        let mut whole = 0;
        while self.rest.len() - whole >= PART_BYTES {
            let part = &self.rest[whole..whole + PART_BYTES];
            let key = self.key(self.parts);
            self.store
                .put(&key, part, PutMode::Create)
                .map_err(failed(&key))?;
            self.parts += 1;
            whole += PART_BYTES;
        }
        self.rest.drain(..whole);
        Ok(())
    }

    /// Hands all bytes to `take`, in order.
    pub(super) fn drain(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for part in 0..self.parts {
            let key = self.key(part);
            take(&self.store.get(&key).map_err(failed(&key))?)?;
        }
        take(&self.rest)
    }

    fn key(&self, part: u64) -> String {
        format!("{}/{part:08}", self.folder)
    }
}
