//! Mistakes that a store or its user could make, to prove that the simulation finds them.

/// A known mistake, made on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// Objects are published before their bytes are synced.
    PublishBeforeSync,
    /// Names are never synced.
    FolderNotSynced,
    /// `COMMIT` is put whether there is one or not.
    CommitOverwrites,
    /// A write that finds the disk full is taken for done.
    FullDiskIgnored,
    /// Old steps are deleted by their numbers, without a look at what is in them.
    PruneByNumber,
    /// The parts of a step are deleted before its `COMMIT`.
    PrunePartsFirst,
    /// The name of a launch is taken for one that no other launch has.
    NamesTakenForUnique,
    /// A keeper forgets what a writer that died had captured.
    OrphansForgotten,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::PublishBeforeSync,
        Self::FolderNotSynced,
        Self::CommitOverwrites,
        Self::FullDiskIgnored,
        Self::PruneByNumber,
        Self::PrunePartsFirst,
        Self::NamesTakenForUnique,
        Self::OrphansForgotten,
    ];
}
