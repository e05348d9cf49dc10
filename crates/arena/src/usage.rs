//! How much memory a rank takes.

use crate::Arena;
use std::sync::Arc;

/// The bytes that one rank takes, by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Parameters as they are stored.
    pub parameters: u64,
    /// Master weights.
    pub masters: u64,
    /// What the optimizer remembers.
    pub moments: u64,
    /// Gradients, and parameters that are gathered or widened: the most there was at once so far.
    pub passes: u64,
}

impl Usage {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.parameters + self.masters + self.moments + self.passes
    }
}

impl Arena {
    /// How much memory this rank takes.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage {
            passes: self.tools.buffers.len_bytes(),
            ..Usage::default()
        };
        let bytes = |values: &Arc<Vec<f32>>| size_of_val(&values[..]) as u64;
        for memory in &self.memories {
            usage.parameters += memory.parameters.held.bytes().len() as u64;
            usage.masters += memory.master.iter().map(bytes).sum::<u64>();
            usage.moments += memory.moments.iter().map(bytes).sum::<u64>();
        }
        usage
    }
}
