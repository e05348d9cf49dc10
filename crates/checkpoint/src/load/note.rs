//! What a process says to those it loads with, as plain data.

use super::deal::Members;
use crate::Error;
use crate::error::chain;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a process says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// What it loads, by group, once it knows.
    pub(crate) groups: Option<BTreeMap<u64, u64>>,
    /// What lies in each of its slots.
    pub(crate) slots: Vec<Vec<Part>>,
    /// How many parts it has taken from each peer.
    pub(crate) taken: Vec<u64>,
    /// The bytes it has read: a sign of life.
    pub(crate) read_bytes: u64,
    pub(crate) outcome: Option<Outcome>,
}

/// One peer's part of a parcel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) peer: usize,
    /// Counts the parts from this sender to this peer.
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) crc: u32,
    pub(crate) whole: bool,
}

/// How a load ended for a process, or why it cannot end well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Finished,
    Damaged { file: String, reason: String },
    Lost { rank: usize, reason: String },
    Failed { rank: usize, message: String },
}

impl Outcome {
    /// What to tell the others about an error of `rank`, so that they can report the same.
    pub(crate) fn of(error: &Error, rank: usize) -> Self {
        match error {
            Error::Damaged { file, reason } => Outcome::Damaged {
                file: file.clone(),
                reason: reason.clone(),
            },
            Error::Store {
                source:
                    cairn_store::Error::NotFound { key } | cairn_store::Error::Truncated { key, .. },
                ..
            } => Outcome::Damaged {
                file: key.clone(),
                reason: chain(error),
            },
            Error::PeerLost { rank, reason } => Outcome::Lost {
                rank: *rank,
                reason: reason.clone(),
            },
            Error::PeerFailed { rank, message } => Outcome::Failed {
                rank: *rank,
                message: message.clone(),
            },
            error => Outcome::Failed {
                rank,
                message: chain(error),
            },
        }
    }

    /// The error to report if a peer ended so.
    pub(crate) fn into_error(self) -> Option<Error> {
        match self {
            Outcome::Finished => None,
            Outcome::Damaged { file, reason } => Some(Error::Damaged { file, reason }),
            Outcome::Lost { rank, reason } => Some(Error::PeerLost { rank, reason }),
            Outcome::Failed { rank, message } => Some(Error::PeerFailed { rank, message }),
        }
    }
}

/// Whether two peers load the same in every group that both are in.
pub(crate) fn agree(
    ours: &BTreeMap<u64, u64>,
    theirs: &BTreeMap<u64, u64>,
    us: usize,
    them: usize,
) -> bool {
    let common = |groups: &BTreeMap<u64, u64>| -> BTreeMap<u64, u64> {
        let both = |members| Members(members).contains(us) && Members(members).contains(them);
        let groups = groups.iter().filter(|(members, _)| both(**members));
        groups.map(|(members, hash)| (*members, *hash)).collect()
    };
    common(ours) == common(theirs)
}
