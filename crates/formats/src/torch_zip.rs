//! What `torch.save` wrote: a zip of one pickle and the raw bytes of every storage.
//!
//! ```text
//! archive/data.pkl            the object; tensors refer to storages by number
//! archive/byteorder           `little`
//! archive/data/0, data/1, …   storages, each 64-byte aligned, never compressed
//! central directory           where each of them begins
//! ```
//!
//! The pickle is read by [`pickle`], so nothing in it runs. Nested dicts and lists are joined with `.`:
//! `{"model": {"w": …}, "step": 3}` has the tensor `model.w` and the value `step`. A branch without tensors is one value.

mod directory;
mod dtypes;
mod encode;
mod ends;
mod named;
mod rebuild;
mod state;
mod zip;

use crate::model::{DataFile, Model};
use crate::pickle::{self, Bytes, Pickle, Policy};
use crate::{Error, plain};
use cairn_store::{ObjectReader, Store};
use std::ops::Range;

pub use dtypes::{dtype, torch_name};
pub use encode::{Frame, tensor_frame, value_archive};
pub use rebuild::{Located, locate};
pub(crate) use rebuild::{rebuilt, sizes};
pub use state::{StateFrames, state_frames};

pub(crate) use directory::Archive;

/// The longest pickle of an archive that is read.
pub const MAX_PICKLE_BYTES: u64 = 1 << 30;

/// The first bytes of a zip.
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";
/// The first bytes of what torch wrote before it used zips: a pickled number.
const OLD_MAGIC: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// Opens the file `key`, written by `torch.save`.
///
/// # Errors
/// If it is not a torch archive, is damaged, or its pickle names what plain data has no need of.
pub fn open_file(store: &dyn Store, key: &str) -> Result<Model, Error> {
    open_files(store, &[key], &policy())
}

/// Opens several archives as one model; their names must differ.
pub(crate) fn open_files(
    store: &dyn Store,
    keys: &[&str],
    policy: &Policy,
) -> Result<Model, Error> {
    let mut model = Model {
        format: "torch",
        ..Model::default()
    };
    for key in keys {
        add_file(store, key, policy, &mut model)?;
    }
    Ok(model)
}

/// Adds everything in the archive `key` to a model.
pub(crate) fn add_file(
    store: &dyn Store,
    key: &str,
    policy: &Policy,
    model: &mut Model,
) -> Result<(), Error> {
    let reader = store.reader(key)?;
    let range = 0..reader.len();
    check_magic(key, reader.as_ref())?;
    let archive = Archive::read(key, reader.as_ref(), range)?;
    let pickle = archive.pickle(policy)?;
    let file = model.files.len();
    model.files.push(DataFile::plain(key, reader.len()));
    named::add(&archive, &pickle, file, model)
}

/// Whether the file begins like something `torch.save` wrote.
pub(crate) fn is_archive(prefix: &[u8]) -> bool {
    prefix.starts_with(ZIP_MAGIC) || prefix.starts_with(OLD_MAGIC)
}

/// The names that tensors, parameters and plain values are pickled with.
pub fn policy() -> Policy {
    plain::policy()
        .call(rebuild::CALLED)
        .mention(rebuild::MENTIONED)
        .mention(dtypes::STORAGES)
}

/// Reads the plain value in a small archive that is in memory.
pub(crate) fn read_value(file: &str, bytes: &[u8]) -> Result<serde_json::Value, Error> {
    let reader = Bytes(bytes);
    let archive = Archive::read(file, &reader, 0..bytes.len() as u64)?;
    let pickle = match archive.pickle(&policy()) {
        Err(Error::Global { global, .. }) => return Ok(plain::opaque(&global)),
        result => result?,
    };
    plain::from_pickle(file, &reader, pickle.root())
}

fn check_magic(file: &str, reader: &dyn ObjectReader) -> Result<(), Error> {
    let mut prefix = vec![
        0;
        OLD_MAGIC
            .len()
            .min(usize::try_from(reader.len()).unwrap_or(0))
    ];
    reader.read_at(0, &mut prefix)?;
    if prefix.starts_with(ZIP_MAGIC) {
        return Ok(());
    }
    let (reason, hint) = if prefix.starts_with(OLD_MAGIC) {
        (
            "it was written by torch before version 1.6",
            "load it and save it again with a newer torch",
        )
    } else {
        (
            "it does not begin like a torch archive",
            "is it complete, and was it written by `torch.save`?",
        )
    };
    Err(Error::Unsupported {
        file: file.to_string(),
        reason: reason.into(),
        hint,
    })
}

impl Archive<'_> {
    /// The pickle of the archive. The byte order is checked on the way.
    pub(crate) fn pickle(&self, policy: &Policy) -> Result<Pickle, Error> {
        if let Some(entry) = self.entry("byteorder") {
            let range = self.data(entry)?;
            let order = self.small(range)?;
            if order != b"little" {
                return Err(Error::Unsupported {
                    file: self.file.to_string(),
                    reason: format!("its byte order is `{}`", String::from_utf8_lossy(&order)),
                    hint: "save it again on a little-endian machine",
                });
            }
        }
        let entry = self.entry("data.pkl");
        let entry = entry.ok_or_else(|| Error::Unsupported {
            file: self.file.to_string(),
            reason: "it is a zip without `data.pkl`".into(),
            hint: "only what `torch.save` wrote is read, not scripted modules or other zips",
        })?;
        let range = self.data(entry)?;
        if range.end - range.start > MAX_PICKLE_BYTES {
            return Err(Error::damaged(
                self.file,
                "its pickle is over the limit of 1 GiB",
            ));
        }
        pickle::read(self.file, self.reader, range, policy)
    }

    fn small(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(64)];
        self.reader.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
