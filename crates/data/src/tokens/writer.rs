//! Writes files of tokens whose length nobody knows before.

use super::spool::Spool;
use super::{HEADER_BYTES, Header, MAX_FIELDS_BYTES, Width};
use crate::file::failed;
use crate::{Error, Fields};
use cairn_store::{AlignedBuffer, ObjectWriter, Store};
use std::sync::Arc;

/// How many bytes are written at once.
const CHUNK_BYTES: usize = 4 << 20;

/// A file of tokens being written, document by document, in little memory.
///
/// What does not fit in memory waits in a folder beside the file, `<key>.spool`, until the file can be written.
///
/// # Crash safety
/// There is no file before [`finish`](Self::finish), and all of it after. A writer that is killed leaves its folder behind; the next writer of the same file removes
/// it. A writer that is dropped removes it itself. So a file has one writer at a time.
#[derive(Debug)]
pub struct TokenWriter {
    store: Arc<dyn Store>,
    key: String,
    header: Header,
    tokens: Spool,
    ends: Spool,
    field_ends: Spool,
    fields: Spool,
}

impl TokenWriter {
    /// Begins the file `key`. With a vocabulary, tokens that are not below it are refused now and when the file is read.
    ///
    /// # Errors
    /// If the file exists, or what an earlier writer left cannot be removed.
    pub fn create(
        store: &Arc<dyn Store>,
        key: &str,
        width: Width,
        vocabulary: Option<u32>,
    ) -> Result<Self, Error> {
        if store.head(key).map_err(failed(key))?.is_some() {
            let source = cairn_store::Error::AlreadyExists {
                key: key.to_owned(),
            };
            return Err(failed(key)(source));
        }
        remove_spool(store.as_ref(), key).map_err(failed(key))?;
        let spool = |name: &str| Spool::new(store, format!("{}/{name}", spool_folder(key)));
        Ok(Self {
            store: store.clone(),
            key: key.to_owned(),
            header: Header {
                width,
                documents: 0,
                tokens: 0,
                vocabulary: vocabulary.filter(|count| *count > 0),
                fields_bytes: 0,
            },
            tokens: spool("tokens"),
            ends: spool("ends"),
            field_ends: spool("field-ends"),
            fields: spool("fields"),
        })
    }

    /// Adds a document, perhaps with what else is known about it.
    ///
    /// # Errors
    /// If a token does not fit, or the store has no space. The writer is of no use then.
    pub fn push(&mut self, tokens: &[u32], fields: Option<&Fields>) -> Result<(), Error> {
        self.tokens.push(&self.encode(tokens)?)?;
        self.header.tokens += tokens.len() as u64;
        self.header.documents += 1;
        self.ends.push(&self.header.tokens.to_le_bytes())?;
        if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
            let bytes = serde_json::to_vec(fields).expect("a map of JSON values is JSON");
            if bytes.len() as u64 > MAX_FIELDS_BYTES {
                return Err(Error::Limit {
                    what: "the number of bytes of a document's fields",
                    value: bytes.len() as u64,
                    least: 0,
                    most: MAX_FIELDS_BYTES,
                });
            }
            self.fields.push(&bytes)?;
            self.header.fields_bytes += bytes.len() as u64;
        }
        self.field_ends
            .push(&self.header.fields_bytes.to_le_bytes())
    }

    /// How many documents and tokens there are so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.header.documents, self.header.tokens)
    }

    /// Writes the file, durably, and returns how many bytes it has.
    ///
    /// # Errors
    /// If another writer was faster, or the store has no space.
    pub fn finish(self) -> Result<u64, Error> {
        let len = self
            .header
            .len_bytes()
            .expect("the parts of the file are stored already");
        let object = self
            .store
            .create(&self.key, len)
            .map_err(failed(&self.key))?;
        let mut chunks = Chunks::new(object.as_ref(), &self.key);
        chunks.push(&self.header.to_bytes())?;
        self.tokens.drain(|bytes| chunks.push(bytes))?;
        let tail = (HEADER_BYTES as u64 + self.tokens.len_bytes()) % 8;
        chunks.push(&[0; 8][..((8 - tail) % 8) as usize])?;
        self.ends.drain(|bytes| chunks.push(bytes))?;
        if self.header.fields_bytes > 0 {
            self.field_ends.drain(|bytes| chunks.push(bytes))?;
            self.fields.drain(|bytes| chunks.push(bytes))?;
        }
        chunks.flush()?;
        object.finish().map_err(failed(&self.key))?;
        Ok(len)
    }

    fn encode(&self, tokens: &[u32]) -> Result<Vec<u8>, Error> {
        let refuse = |token: u32, reason: String| Error::Token {
            file: self.key.clone(),
            token,
            reason,
        };
        if let Some(vocabulary) = self.header.vocabulary
            && let Some(token) = tokens.iter().find(|token| **token >= vocabulary)
        {
            return Err(refuse(
                *token,
                format!("the vocabulary has {vocabulary} tokens"),
            ));
        }
        let mut bytes = Vec::with_capacity(tokens.len() * 4);
        for &token in tokens {
            match self.header.width {
                Width::U32 => bytes.extend(token.to_le_bytes()),
                Width::U16 => {
                    let narrow = u16::try_from(token)
                        .map_err(|_| refuse(token, "its tokens have two bytes".into()))?;
                    bytes.extend(narrow.to_le_bytes());
                }
            }
        }
        Ok(bytes)
    }
}

impl Drop for TokenWriter {
    fn drop(&mut self) {
        // If this fails, the next writer of the file removes it.
        let _ = remove_spool(self.store.as_ref(), &self.key);
    }
}

fn spool_folder(key: &str) -> String {
    format!("{key}.spool")
}

fn remove_spool(store: &dyn Store, key: &str) -> Result<(), cairn_store::Error> {
    for part in store.list(&spool_folder(key))? {
        store.delete(&part.key)?;
    }
    Ok(())
}

/// Joins bytes into aligned chunks and writes them one after another.
struct Chunks<'a> {
    object: &'a dyn ObjectWriter,
    key: &'a str,
    buffer: AlignedBuffer,
    filled: usize,
    written: u64,
}

impl<'a> Chunks<'a> {
    fn new(object: &'a dyn ObjectWriter, key: &'a str) -> Self {
        Self {
            object,
            key,
            buffer: AlignedBuffer::new(CHUNK_BYTES),
            filled: 0,
            written: 0,
        }
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let count = bytes.len().min(CHUNK_BYTES - self.filled);
            let (now, later) = bytes.split_at(count);
            self.buffer[self.filled..][..count].copy_from_slice(now);
            self.filled += count;
            bytes = later;
            if self.filled == CHUNK_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let chunk = &self.buffer[..self.filled];
        if !chunk.is_empty() {
            self.object
                .write_at(self.written, chunk)
                .map_err(failed(self.key))?;
            self.written += chunk.len() as u64;
            self.filled = 0;
        }
        Ok(())
    }
}
