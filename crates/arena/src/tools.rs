//! What the work on a rank's memory is done with.

use crate::Error;
use crate::buffers::Buffers;
use cairn_collectives::{Background, Communicator};
use cairn_kernels::Pool;

/// Threads, memory in between, and the calls that a rank makes in the background.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) pool: Pool,
    pub(crate) buffers: Buffers,
    /// Gathers parameters.
    pub(crate) gathers: Background,
    /// Sums gradients. A gather that a block waits for does not stand behind these.
    pub(crate) reductions: Background,
}

impl Tools {
    /// The tools of a rank of the `dp` group.
    ///
    /// # Collective
    pub(crate) fn new(dp: &dyn Communicator, pool: Pool) -> Result<Self, Error> {
        Ok(Self {
            pool,
            buffers: Buffers::default(),
            gathers: Background::new(dp)?,
            reductions: Background::new(dp)?,
        })
    }
}
