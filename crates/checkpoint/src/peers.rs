//! Processes of one machine that load together.

use crate::Error;
use cairn_store::Exchange;
use std::path::PathBuf;
use std::time::Duration;

/// The most processes that load together.
pub const MAX_PEERS: usize = 64;

/// How long a peer may be silent before the others give up, unless chosen.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The processes of one machine that load together, so that each stored byte is read by one of them and handed to the others.
///
/// Nobody has to say what it wants: it follows from the shardings of the targets. A tensor whose pieces are listed, or that
/// belongs to another rank than the process's own, is loaded without the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    /// Which of `ranks` this process is.
    pub index: usize,
    /// The ranks that load together, in the same order for all of them.
    pub ranks: Vec<usize>,
    /// The name of this load: the same for all peers, never used for another load.
    pub token: String,
    /// The folder in which they meet, best in memory.
    pub folder: PathBuf,
    /// How long a peer may be silent before the others give up.
    pub timeout: Duration,
}

impl Peers {
    /// Process number `index` of those of `ranks`, for the load called `token`.
    pub fn new(index: usize, ranks: Vec<usize>, token: impl Into<String>) -> Self {
        Self {
            index,
            ranks,
            token: token.into(),
            folder: Exchange::default_root(),
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// The rank of this process.
    pub fn rank(&self) -> Option<usize> {
        self.ranks.get(self.index).copied()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let mut distinct = self.ranks.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let reason = match self.ranks.len() {
            count if self.index >= count => {
                format!("this is number {} of {count}", self.index)
            }
            count if count > MAX_PEERS => format!("there are {count}, at most {MAX_PEERS} can"),
            count if distinct.len() < count => "a rank is there twice".to_string(),
            _ => return Ok(()),
        };
        Err(Error::Peers { reason })
    }
}
