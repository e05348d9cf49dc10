//! What is known of the blocks of a file when it is written.

use super::{BlockHash, BlockMap, DeltaEntry};

/// The blocks of a file that later saves may refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedBlocks {
    /// The hash of each, but for those that will hardly be referred to.
    pub(crate) hashes: Vec<Option<BlockHash>>,
    /// Where each lies, if the file is a delta.
    pub(crate) delta: Option<(DeltaEntry, BlockMap)>,
}
