//! What can be chosen for all saves of a run.

use crate::clock::{Clock, MachineClock};
use crate::keeper::Keeper;
use crate::pace::Pace;
use crate::signing::PublicKey;
use std::sync::Arc;
use std::time::Duration;

/// What can be chosen for all saves of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a writer waits for the others before it gives up, counted from when its own bytes are durable. On tiers, how long whoever waits
    /// for an upload waits for the files of other ranks: then it uploads them itself if it can, and says whose are missing if not.
    pub commit_timeout: Duration,
    /// How long the other writers leave the commit to writer 0.
    pub takeover: Duration,
    /// The most memory for file images. Without a limit it is as much as the rank writes; with a smaller one `save` takes longer.
    pub staging_bytes: Option<u64>,
    /// Threads that copy the state.
    pub capture_threads: usize,
    /// Memory on each device for copies that leave the training stream at once. Without any, the copies to the host overlap with
    /// what the device does until the next fence.
    pub scratch_bytes: u64,
    /// What happens to a save when the one before is still being written.
    pub overlap: Overlap,
    /// Whether memory that is fenced is read twice and compared.
    pub read_twice: bool,
    /// Whether saves refer to blocks that are as they were in the step before, instead of writing them again. Such steps are no
    /// plain safetensors files, and need the files of the steps they refer to, which [`retention`](crate::retention) keeps.
    pub delta: bool,
    /// Whether data files are compressed, without loss. They are smaller, are no plain safetensors files, and take longer to write where the disk is faster
    /// than the processor.
    pub compress: bool,
    /// How fast the background may write.
    pub pace: Option<Arc<Pace>>,
    /// Only steps that this key signed are opened.
    pub require_key: Option<PublicKey>,
    /// What tells the time.
    pub clock: Arc<dyn Clock>,
    /// Who keeps the memory of captures, so that they outlive this process. What it grants is used in place of staging memory.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// On tiers, how many of the newest steps stay on the fast one once they are durable; all, if not given. What is not durable always stays.
    pub keep_fast: Option<usize>,
    /// On tiers, how long the files of other ranks may be missing on the durable one before the next save fails. Until then only those who wait for
    /// the upload are told, by `commit_timeout`.
    pub upload_timeout: Duration,
}

/// What happens to a save when the one before is still being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// It waits.
    #[default]
    Wait,
    /// It is passed over, on all ranks if on one.
    Skip,
    /// It is captured beside up to so many others that are being written, as far as the staging memory goes.
    Queue(usize),
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            commit_timeout: Duration::from_secs(600),
            takeover: Duration::from_secs(10),
            staging_bytes: None,
            capture_threads: cores.min(4),
            scratch_bytes: 0,
            overlap: Overlap::Wait,
            read_twice: false,
            delta: false,
            compress: false,
            pace: None,
            require_key: None,
            clock: MachineClock::shared(),
            keeper: None,
            keep_fast: Some(2),
            upload_timeout: Duration::from_secs(3600),
        }
    }
}
