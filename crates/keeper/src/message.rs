//! What a keeper and its clients say to each other.
//!
//! ```text
//! ├ head_len u32 ┼ body_len u32 ┼ head: JSON ──────┼ body: bytes ─────┤      numbers are little-endian
//! ```
//!
//! A client asks and the keeper answers, one after the other. The first question is [`Request::Hello`].

use crate::Error;
use crate::status::Status;
use cairn_checkpoint::keeper::Snapshot;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the protocol this build speaks.
pub const VERSION: u32 = 1;

/// The most bytes of a head.
pub(crate) const MAX_HEAD_BYTES: usize = 1 << 20;
/// The most bytes of a body: a part with its checksums, and the small files that travel with a save.
pub(crate) const MAX_BODY_BYTES: usize = 256 << 20;
/// The bytes before the head.
pub(crate) const PREFIX_BYTES: usize = 8;

/// The lengths of what follows a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) head_len: usize,
    pub(crate) body_len: usize,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Who is there?
    Hello { version: u32 },
    /// Memory for a snapshot.
    Begin { about: About },
    /// Every byte is there; the body is the draft.
    Captured { snapshot: u64 },
    /// The data is durable; the body is the part.
    Written { snapshot: u64 },
    /// The step is committed.
    Committed { snapshot: u64 },
    /// The snapshot is not wanted.
    Abandon { snapshot: u64 },
    /// What is held of a run? It stays until this connection ends.
    Held { run: String },
    /// The memory of a snapshot that is held, and what its writer left.
    Fetch { snapshot: u64 },
    /// What does the keeper hold?
    Status,
}

/// What a keeper answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// It is a keeper of this version.
    Welcome { version: u32 },
    /// There is room; the memory comes along unless the client has it already, or needs none. `images` are all it may still use.
    Room {
        snapshot: u64,
        image: Option<u64>,
        images: Vec<u64>,
    },
    /// Done.
    Done,
    /// The snapshots of a run.
    Held { snapshots: Vec<Held> },
    /// The memory comes along; the body is the part and then the draft.
    Fetched { part_len: usize },
    /// What the keeper holds.
    Status { status: Status },
    /// It will not.
    Refused { reason: String },
}

/// A snapshot, as it is described on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Snapshot")]
struct SnapshotFields {
    run: String,
    step: u64,
    attempt: String,
    writer: usize,
    world: usize,
    len_bytes: u64,
    replace: bool,
}

/// A snapshot in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About(#[serde(with = "SnapshotFields")] pub(crate) Snapshot);

/// A snapshot that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) snapshot: u64,
    pub(crate) about: About,
    /// Whether its writer is gone, so that nobody else will say what becomes of it.
    pub(crate) orphan: bool,
}

impl Prefix {
    /// Reads the lengths.
    ///
    /// # Errors
    /// [`Error::Message`] if one is over its limit.
    pub(crate) fn decode(bytes: [u8; PREFIX_BYTES]) -> Result<Self, Error> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let len = |bytes| usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
        let (head_len, body_len) = (len([a, b, c, d]), len([e, f, g, h]));
        if head_len > MAX_HEAD_BYTES || body_len > MAX_BODY_BYTES {
            return Err(Error::message(format!(
                "{head_len} and {body_len} bytes are over the limits of {MAX_HEAD_BYTES} and {MAX_BODY_BYTES}"
            )));
        }
        Ok(Self { head_len, body_len })
    }
}

/// The prefix and the head of a message.
///
/// # Errors
/// [`Error::Message`] if it is over a limit.
pub(crate) fn encode(head: &impl Serialize, body_len: usize) -> Result<Vec<u8>, Error> {
    let head = serde_json::to_vec(head).map_err(|error| Error::message(error.to_string()))?;
    let len = |len: usize, most: usize| match u32::try_from(len) {
        Ok(count) if len <= most => Ok(count.to_le_bytes()),
        _ => Err(Error::message(format!("{len} bytes are over {most}"))),
    };
    let mut bytes = len(head.len(), MAX_HEAD_BYTES)?.to_vec();
    bytes.extend(len(body_len, MAX_BODY_BYTES)?);
    bytes.extend(head);
    Ok(bytes)
}

/// Reads a head.
///
/// # Errors
/// [`Error::Message`] if it is none.
pub(crate) fn decode<T: DeserializeOwned>(head: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(head).map_err(|error| Error::message(error.to_string()))
}

#[cfg(test)]
mod tests {
    //! Messages come back as they were, and no bytes whatever do harm.

    use super::*;
    use proptest::prelude::*;

    fn snapshots() -> impl Strategy<Value = Snapshot> {
        let names = ("[ -~]{0,40}", "\\PC{0,20}");
        let numbers = (any::<u64>(), any::<usize>(), any::<usize>(), any::<u64>());
        (names, numbers, any::<bool>()).prop_map(|((run, attempt), numbers, replace)| {
            let (step, writer, world, len_bytes) = numbers;
            Snapshot {
                run,
                step,
                attempt,
                writer,
                world,
                len_bytes,
                replace,
            }
        })
    }

    fn requests() -> impl Strategy<Value = Request> {
        prop_oneof![
            any::<u32>().prop_map(|version| Request::Hello { version }),
            snapshots().prop_map(|about| Request::Begin {
                about: About(about)
            }),
            any::<u64>().prop_map(|snapshot| Request::Captured { snapshot }),
            any::<u64>().prop_map(|snapshot| Request::Abandon { snapshot }),
            "\\PC{0,40}".prop_map(|run| Request::Held { run }),
            Just(Request::Status),
        ]
    }

    proptest! {
        #[test]
        fn a_request_comes_back_as_it_was(request in requests(), body_len in 0..=MAX_BODY_BYTES) {
            let bytes = encode(&request, body_len).unwrap();
            let (prefix, head) = bytes.split_first_chunk::<PREFIX_BYTES>().unwrap();
            let prefix = Prefix::decode(*prefix).unwrap();
            prop_assert_eq!(prefix, Prefix { head_len: head.len(), body_len });
            prop_assert_eq!(decode::<Request>(head).unwrap(), request);
        }

        #[test]
        fn garbage_is_refused_or_understood_but_never_more(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some((prefix, head)) = bytes.split_first_chunk::<PREFIX_BYTES>() {
                if let Ok(prefix) = Prefix::decode(*prefix) {
                    prop_assert!(prefix.head_len <= MAX_HEAD_BYTES && prefix.body_len <= MAX_BODY_BYTES);
                }
                let _ = decode::<Request>(head);
                let _ = decode::<Reply>(head);
            }
        }

        #[test]
        fn a_damaged_request_is_refused_or_another_one(request in requests(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = encode(&request, 0).unwrap().split_off(PREFIX_BYTES);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = decode::<Request>(&bytes);
        }
    }

    #[test]
    fn what_is_too_long_is_refused_on_both_sides() {
        let prefix = |head: u32, body: u32| {
            let [a, b, c, d] = head.to_le_bytes();
            let [e, f, g, h] = body.to_le_bytes();
            Prefix::decode([a, b, c, d, e, f, g, h])
        };
        let most = u32::try_from(MAX_HEAD_BYTES).unwrap();
        assert!(prefix(most, 0).is_ok());
        assert!(prefix(most + 1, 0).is_err());
        assert!(prefix(0, u32::MAX).is_err());
        assert!(encode(&Request::Status, MAX_BODY_BYTES + 1).is_err());
        let run = "x".repeat(MAX_HEAD_BYTES);
        assert!(encode(&Request::Held { run }, 0).is_err());
    }
}
