//! What passes between the parts of a pipeline.

use cairn_collectives::{Communicator, Error, numbers};
use cairn_kernels::Pool;
use cairn_model::Activation;
use cairn_plan::Work;
use std::collections::HashMap;

/// Takes activations to the next part of the model and gradients to the part before, on this stage or another.
///
/// Sends return at once, as [`Communicator::send`] promises, so that neighbours may send to each other at the same time.
#[derive(Debug)]
pub(crate) struct Link<'a> {
    group: &'a dyn Communicator,
    pool: &'a Pool,
    micro_batches: usize,
    /// What stays on this stage, by its tag.
    here: HashMap<u64, Activation<f32>>,
}

impl<'a> Link<'a> {
    /// A link between the stages of `group`.
    pub(crate) fn new(group: &'a dyn Communicator, pool: &'a Pool, micro_batches: usize) -> Self {
        Self {
            group,
            pool,
            micro_batches,
            here: HashMap::new(),
        }
    }

    /// Gives part `part` what it works on.
    pub(crate) fn send(
        &mut self,
        work: Work,
        part: usize,
        micro_batch: usize,
        numbers: Activation<f32>,
    ) -> Result<(), Error> {
        let tag = self.tag(work, part, micro_batch);
        let stage = part % self.group.size();
        if stage == self.group.rank() {
            self.here.insert(tag, numbers);
            return Ok(());
        }
        let len = (numbers.len() as u64).to_le_bytes();
        self.group.send(stage, tag, &len)?;
        numbers::send(self.group, stage, tag, &numbers)
    }

    /// What part `from` gave part `part` to work on.
    pub(crate) fn receive(
        &mut self,
        work: Work,
        from: usize,
        part: usize,
        micro_batch: usize,
    ) -> Result<Activation<f32>, Error> {
        let tag = self.tag(work, part, micro_batch);
        let stage = from % self.group.size();
        if stage == self.group.rank() {
            let numbers = self.here.remove(&tag);
            return Ok(numbers.expect("a schedule has every part after the one before"));
        }
        let mut len = [0; 8];
        self.group.receive(stage, tag, &mut len)?;
        let len = usize::try_from(u64::from_le_bytes(len)).unwrap_or(0);
        let mut numbers = self.pool.buffer(len);
        numbers::receive(self.group, stage, tag, &mut numbers)?;
        Ok(numbers)
    }

    fn tag(&self, work: Work, part: usize, micro_batch: usize) -> u64 {
        let number = part * self.micro_batches + micro_batch;
        2 * number as u64 + u64::from(work == Work::Backward)
    }
}
