//! Pickles read as inert records: nothing is imported, nothing is called, nothing runs.
//!
//! A pickle is a program for a small stack machine. Python's machine imports modules and calls what it finds there; this
//! one only writes down what was said. `os.system("…")` would become a record with the class `os.system` and one argument,
//! but does not get that far: a [`Policy`] lists the names a pickle may mention, build and call, and the first other name
//! stops the reading with its name, the file and the byte.
//!
//! ```
//! use cairn_formats::pickle::{self, Policy};
//!
//! let bytes = b"\x80\x04\x95\x0b\0\0\0\0\0\0\0}\x8c\x04step\x94K\x07s.";
//! let record = pickle::parse("state.pkl", bytes, &Policy::new())?;
//! assert_eq!(record.root().get("step").unwrap().as_int(), Some(7));
//! # Ok::<(), cairn_formats::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | read a pickle in memory | [`parse`] |
//! | read one in a file, large byte strings left where they are | [`read`], [`Value::FileBytes`] |
//! | say which names are expected | [`Policy`] |
//! | write one | [`Writer`] |
//! | walk the result | [`Pickle::root`], [`Node`] |
//!
//! The result is a table of values that refer to each other by number, so sharing costs nothing and a value may contain
//! itself. Whoever walks it bounds the depth with [`MAX_DEPTH`] and counts what they visit. Memory is proportional to the
//! bytes read, and every count has a limit below.

mod input;
mod machine;
mod node;
mod policy;
#[cfg(test)]
mod tests;
mod write;

pub use input::{Bytes, Input};
pub use machine::{parse, read};
pub use node::{Node, Object, Pickle, Value};
pub use policy::Policy;
pub use write::Writer;

/// An integer in two's complement, lowest byte first, without the bytes that only repeat its sign.
pub(crate) fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., before, last] = bytes {
        let sign = if *before >= 0x80 { 0xff } else { 0 };
        if *last != sign {
            break;
        }
        bytes = &bytes[..rest.len() + 1];
    }
    bytes
}

/// The deepest nesting that is walked.
pub const MAX_DEPTH: usize = 128;
/// The most values in one pickle, and the most entries on its stack and in its memo.
pub const MAX_VALUES: usize = 1 << 25;
/// The most bytes of strings and byte strings that are kept in memory.
pub const MAX_TEXT_BYTES: u64 = 1 << 30;
/// The longest integer.
pub const MAX_INT_BYTES: usize = 1024;
/// Byte strings of this length or more stay in the file: [`Value::FileBytes`].
pub const MIN_FILE_BYTES: u64 = 64 << 10;
