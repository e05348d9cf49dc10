//! How much memory a rank takes.

use crate::Arena;

/// The bytes that one rank takes, by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Parameters as they are stored.
    pub parameters: u64,
    /// Master weights, if they are in memory.
    pub masters: u64,
    /// What the optimizer remembers, if it is in memory.
    pub moments: u64,
    /// Master weights and what the optimizer remembers, if they are in files: no memory at all.
    pub files: u64,
    /// Gradients, and parameters that are gathered or widened: the most there was at once so far.
    pub passes: u64,
}

impl Usage {
    /// All of it that is memory.
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
        for memory in &self.memories {
            usage.parameters += memory.parameters.held.bytes().len() as u64;
            let each = memory.remembered.list_bytes();
            let masters = each * u64::from(memory.has_master);
            let moments = each * self.options.optimizer.moments().len() as u64;
            match memory.remembered.is_in_file() {
                true => usage.files += masters + moments,
                false => {
                    usage.masters += masters;
                    usage.moments += moments;
                }
            }
        }
        usage
    }
}
