//! A file that grows.

use std::fs::File;
use std::io::Write;

use crate::{Error, Local, PutMode, Store};

/// A local object that grows while it is read: a log, for people and their tools.
///
/// It is no place for state: what was pushed last may be lost, or there in part, after a crash.
#[derive(Debug)]
pub struct Journal {
    key: String,
    file: File,
}

impl Journal {
    /// Puts `start` under `key`, in the place of what is there, to go on from.
    ///
    /// # Errors
    ///
    /// As [`Store::put`].
    pub fn begin(store: &Local, key: &str, start: &[u8]) -> Result<Self, Error> {
        store.put(key, start, PutMode::Replace)?;
        let file = File::options().append(true).open(store.path(key)?);
        Ok(Self {
            key: key.to_owned(),
            file: file.map_err(|error| Error::from_io(key, "open", error))?,
        })
    }

    /// Adds `bytes` at the end, in one piece for whoever reads.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let pushed = self.file.write_all(bytes);
        pushed.map_err(|error| Error::from_io(&self.key, "write", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_goes_on_from_its_start_and_can_be_read_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let store = Local::new(folder.path().join("deeper"));
        let mut journal = Journal::begin(&store, "log", b"one\n").unwrap();
        journal.push(b"two\n").unwrap();
        assert_eq!(store.get("log").unwrap(), b"one\ntwo\n");
        drop(journal);
        let mut journal = Journal::begin(&store, "log", b"").unwrap();
        journal.push(b"three\n").unwrap();
        assert_eq!(store.get("log").unwrap(), b"three\n");
    }
}
