//! A file that is read by position.

use crate::Error;
use cairn_store::{ObjectReader, Store};
use std::fmt;
use std::sync::Arc;

/// A file that is read by position, and knows its name for messages.
pub(crate) struct File {
    name: String,
    reader: Box<dyn ObjectReader>,
}

impl File {
    /// Opens the object `key` of a store.
    pub(crate) fn open(store: &dyn Store, key: &str) -> Result<Self, Error> {
        let reader = store.reader(key).map_err(failed(key))?;
        let name = key.to_owned();
        Ok(Self { name, reader })
    }

    /// The same file under the name that a user gave it.
    pub(crate) fn named(self, name: &str) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// The name for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many bytes there are.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.reader.len()
    }

    /// Fills `buffer` from `offset` on.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let read = self.reader.read_at(offset, buffer);
        read.map_err(failed(&self.name))
    }

    /// The `count` numbers of 8 bytes from `offset` on.
    ///
    /// The caller has checked that the file is long enough for them.
    pub(crate) fn read_u64s(&self, offset: u64, count: usize) -> Result<Vec<u64>, Error> {
        let mut bytes = vec![0; count * 8];
        self.read(offset, &mut bytes)?;
        let (numbers, _) = bytes.as_chunks::<8>();
        Ok(numbers
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect())
    }

    /// The error that says the file contradicts itself.
    pub(crate) fn damaged(&self, reason: impl Into<String>) -> Error {
        Error::Damaged {
            file: self.name.clone(),
            reason: reason.into(),
        }
    }

    /// The error that says the file is of another kind.
    pub(crate) fn foreign(&self, reason: impl Into<String>) -> Error {
        Error::Foreign {
            file: self.name.clone(),
            reason: reason.into(),
        }
    }

    /// The error that says one document is damaged.
    pub(crate) fn bad_document(&self, document: u64, reason: impl Into<String>) -> Error {
        Error::Document {
            file: self.name.clone(),
            document,
            reason: reason.into(),
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({}, {} bytes)", self.name, self.len_bytes())
    }
}

/// Says which file an error of the store is about.
pub(crate) fn failed(file: &str) -> impl FnOnce(cairn_store::Error) -> Error {
    let file = file.to_owned();
    |source| Error::File { file, source }
}

/// The store and the key of a path.
pub(crate) fn locate(path: &str) -> Result<(Arc<dyn Store>, String), Error> {
    let (folder, key) = match path.trim_end_matches('/').rsplit_once('/') {
        Some(("", key)) => ("/", key),
        Some((folder, key)) => (folder, key),
        None => (".", path),
    };
    let store = cairn_store::open(folder).map_err(failed(path))?;
    Ok((store, key.to_owned()))
}
