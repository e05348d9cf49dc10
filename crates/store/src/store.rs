//! The three traits every store implements, and the plain data they exchange.

mod shared;

use std::fmt::Debug;
use std::time::SystemTime;

use crate::{Error, Location, Tiered, key};

/// The largest object [`Store::get`] reads, in bytes: 1 GiB.
pub const MAX_GET_BYTES: u64 = 1 << 30;

/// A place that keeps bytes under keys and publishes them atomically.
///
/// A key is a path such as `run/step-00000100/COMMIT`: segments joined by `/`, in UTF-8. No segment
/// is empty, `.` or `..`, contains a NUL or a backslash, begins with `.tmp-`, or has more than
/// [`MAX_SEGMENT_BYTES`](crate::MAX_SEGMENT_BYTES) bytes; the whole key has at most
/// [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES). A prefix is a key, meaning the folder of that name, or
/// `""` for everything. A key should not also be the folder of another key: file systems refuse that.
///
/// # Crash safety
///
/// An object is either absent or whole, to every reader at every moment, and once the publishing call
/// has returned it stays there through a power loss. When that call fails, the object may be there or
/// not, but it is never partly there.
pub trait Store: Send + Sync + Debug {
    /// Where this store is, for messages: `file:///data/run`, `memory:`.
    fn url(&self) -> String;

    /// Where the object `key` really lies, or would lie; the empty key is the folder that the store is in.
    ///
    /// Where a store is made of several, an object may lie in any of them.
    fn locations(&self, key: &str) -> Vec<Location> {
        vec![Location::named(&self.url(), key)]
    }

    /// Publishes a small object in one step.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the mode is [`PutMode::Create`] and the key is taken.
    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error>;

    /// Begins a large object of exactly `len` bytes, and reserves the space for it.
    ///
    /// Nothing is visible under the key until [`ObjectWriter::finish`].
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if the object cannot fit, [`Error::AlreadyExists`] if the key is taken.
    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error>;

    /// As [`create`](Store::create), for an object whose length is known only when it ends: at most `most` bytes.
    ///
    /// Where that is possible, no space is reserved before bytes are written. The object is ended by
    /// [`ObjectWriter::finish_at`].
    ///
    /// # Errors
    ///
    /// As [`create`](Store::create).
    fn create_up_to(&self, key: &str, most: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        self.create(key, most)
    }

    /// Opens an object for reading at any offset.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is none.
    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error>;

    /// Reads a whole small object.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] beyond [`MAX_GET_BYTES`], [`Error::NotFound`] if there is no object.
    fn get(&self, key: &str) -> Result<Vec<u8>, Error> {
        self.get_prefix(key, usize::MAX)
    }

    /// Reads the first `len` bytes of an object, or all of it if it is shorter.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if that is more than [`MAX_GET_BYTES`], [`Error::NotFound`] if there is no object.
    fn get_prefix(&self, key: &str, len: usize) -> Result<Vec<u8>, Error> {
        let reader = self.reader(key)?;
        let len = reader.len().min(len as u64);
        if len > MAX_GET_BYTES {
            return Err(Error::TooLarge {
                key: key.to_owned(),
                len,
                limit: MAX_GET_BYTES,
            });
        }
        let len = usize::try_from(len).expect("MAX_GET_BYTES fits the address space");
        let mut bytes = vec![0; len];
        reader.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Describes an object, or returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot tell.
    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error>;

    /// Lists all objects under the folder `prefix`, at any depth, sorted by key.
    ///
    /// # Errors
    ///
    /// Fails if any part of the folder cannot be listed. A folder that does not exist is empty.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error>;

    /// Lists the objects directly inside the folder `prefix`, sorted by key.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be listed. A folder that does not exist is empty.
    fn list_files(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        let start = if prefix.is_empty() {
            0
        } else {
            prefix.len() + 1
        };
        let mut found = self.list(prefix)?;
        found.retain(|meta| !meta.key[start..].contains('/'));
        Ok(found)
    }

    /// Lists the names of the folders directly inside the folder `prefix`, sorted.
    ///
    /// On file systems a folder may be shown that contains no objects.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be listed. A folder that does not exist is empty.
    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error>;

    /// Gives an object another key, durably.
    ///
    /// To every reader it is, at every moment, under one of the two keys.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no object, [`Error::AlreadyExists`] if the mode is
    /// [`PutMode::Create`] and the other key is taken.
    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error>;

    /// Removes an object, durably; removing one that does not exist succeeds.
    ///
    /// # Errors
    ///
    /// Fails if the object is, or may still be, there.
    fn delete(&self, key: &str) -> Result<(), Error>;

    /// Makes durable what is visible in the folder `prefix`, whoever published it.
    ///
    /// A file system shows a file before its name is durable, while its writer still waits for that. Who publishes
    /// something that counts on objects of others calls this first. Where all that is visible is durable, there is
    /// nothing to do.
    ///
    /// # Errors
    ///
    /// Fails if it may not be durable.
    fn settle(&self, prefix: &str) -> Result<(), Error> {
        key::check_prefix(prefix)
    }

    /// Removes what writers that died left under the folder `prefix`, and returns how many pieces.
    ///
    /// Such leftovers are in no listing but take space. Only those that no living writer can own are
    /// removed: a piece goes when its writer is known to be dead, or has not touched it for a day.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be listed or a leftover cannot be removed.
    fn sweep(&self, prefix: &str) -> Result<u64, Error>;

    /// How many more bytes the store can take, or `None` where that has no meaning.
    ///
    /// # Errors
    ///
    /// Fails if the system does not answer.
    fn available_bytes(&self) -> Result<Option<u64>, Error>;

    /// Whether, of racing creators, exactly one wins here.
    ///
    /// A store that says no still refuses a key that is taken, but two that create at the same moment may both
    /// be told that they won: let one process alone create what matters.
    ///
    /// # Errors
    ///
    /// Fails if the store has to be asked and does not answer.
    fn has_one_winner(&self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Whether something in the name of `prefix` is a link: what lies there is read and written, but nothing is moved or deleted.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    fn is_linked(&self, prefix: &str) -> Result<bool, Error> {
        let _ = prefix;
        Ok(false)
    }

    /// Whether every request takes a while, so that several are better made at the same time.
    fn is_far(&self) -> bool {
        false
    }

    /// Lists the uploads under the folder `prefix` that were begun and are neither finished nor given up.
    ///
    /// Only services that keep the parts of large objects have some; whoever died in the middle pays for them.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be listed.
    fn uploads(&self, prefix: &str) -> Result<Vec<Upload>, Error> {
        key::check_prefix(prefix)?;
        Ok(Vec::new())
    }

    /// Gives up an upload that [`uploads`](Store::uploads) listed; one that is over already is none.
    ///
    /// # Errors
    ///
    /// Fails if its parts are, or may still be, there.
    fn abort(&self, upload: &Upload) -> Result<(), Error> {
        key::check(&upload.key)
    }

    /// The two stores that this one is made of, if it is.
    fn tiers(&self) -> Option<&Tiered> {
        None
    }
}

/// A large object whose parts a service keeps, and that nobody has finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The key that it would have.
    pub key: String,
    /// What the service calls it.
    pub id: String,
    /// When it was begun, by the store's clock.
    pub begun: SystemTime,
}

/// What [`Store::put`] and [`Store::rename`] do when the key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutMode {
    /// Refuse. Of any number of racing creators exactly one wins.
    Create,
    /// Replace the old object. Readers see the old bytes or the new ones.
    Replace,
}

/// A large object being written, by any number of threads.
///
/// Dropping the writer without [`finish`](ObjectWriter::finish) abandons the object.
pub trait ObjectWriter: Send + Sync {
    /// Writes `bytes` at `offset`; calls may come from any thread, in any order.
    ///
    /// Writes are disjoint. The offset, and the length of all but the write that ends the object, are
    /// multiples of [`ALIGNMENT`](crate::ALIGNMENT). It is fastest if the address of `bytes` is too, as
    /// in an [`AlignedBuffer`](crate::AlignedBuffer). A write that failed may be tried again.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidRange`] if the range breaks these rules.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Makes all bytes durable and the object visible.
    ///
    /// # Errors
    ///
    /// [`Error::Incomplete`] if a byte was never written, [`Error::AlreadyExists`] if another writer
    /// published under this key first.
    fn finish(self: Box<Self>) -> Result<(), Error>;

    /// As [`finish`](ObjectWriter::finish), for an object that ends after `len` bytes, all of which were
    /// written, and nothing behind them.
    ///
    /// # Errors
    ///
    /// As [`finish`](ObjectWriter::finish); [`Error::Unsupported`] in a store that must know the length
    /// before.
    fn finish_at(self: Box<Self>, len: u64) -> Result<(), Error> {
        let _ = len;
        Err(Error::Unsupported {
            key: String::new(),
            operation: "end early",
        })
    }
}

/// An object open for reading, by any number of threads.
///
/// It reads the object as it was when opened; if that is replaced or deleted meanwhile, a store that
/// cannot go on reading it fails, and never mixes old and new bytes.
#[expect(
    clippy::len_without_is_empty,
    reason = "the length of an object, not of a collection"
)]
pub trait ObjectReader: Send + Sync {
    /// The length of the object, in bytes.
    fn len(&self) -> u64;

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// It is fastest if offset, length and address are multiples of [`ALIGNMENT`](crate::ALIGNMENT).
    ///
    /// # Errors
    /// [`Error::Truncated`] if the object ends before the buffer is full.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error>;

    /// How many bytes may lie between two ranges that cost less as one read. A disk has no such gap.
    fn gap_bytes(&self) -> u64 {
        0
    }

    /// Whether bytes come from memory, so that many small reads cost no more than a large one.
    fn is_memory(&self) -> bool {
        false
    }
}

/// What a store knows about an object without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// The full key.
    pub key: String,
    /// The length, in bytes.
    pub len: u64,
    /// When the object was published or last replaced, by the store's clock.
    pub modified: SystemTime,
}
