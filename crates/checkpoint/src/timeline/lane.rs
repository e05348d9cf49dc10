//! The kinds of work a save consists of.

use std::fmt;

/// A kind of work in a save. The order is the one they are drawn in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lane {
    /// `save` holds its caller.
    Stall,
    /// The caller waits after `save` has returned: for room in a ring, or before it changes the state again.
    Fence,
    /// Working out what this rank writes.
    Plan,
    /// Gathering pieces of tensors into one buffer.
    Pack,
    /// Copying from the device to the host, or within the host.
    Copy,
    /// Computing checksums.
    Checksum,
    /// Bringing running averages up to date.
    Average,
    /// Handing bytes to the store.
    Write,
    /// Making them durable and visible.
    Sync,
    /// Waiting for the other ranks, and committing.
    Commit,
}

impl Lane {
    /// Every lane, in the order they are drawn in.
    pub const ALL: [Lane; 10] = [
        Lane::Stall,
        Lane::Fence,
        Lane::Plan,
        Lane::Pack,
        Lane::Copy,
        Lane::Checksum,
        Lane::Average,
        Lane::Write,
        Lane::Sync,
        Lane::Commit,
    ];

    /// The lane's name: `stall`.
    pub fn name(self) -> &'static str {
        match self {
            Lane::Stall => "stall",
            Lane::Fence => "fence",
            Lane::Plan => "plan",
            Lane::Pack => "pack",
            Lane::Copy => "copy",
            Lane::Checksum => "checksum",
            Lane::Average => "average",
            Lane::Write => "write",
            Lane::Sync => "sync",
            Lane::Commit => "commit",
        }
    }

    /// The lane of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.name() == name)
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}
