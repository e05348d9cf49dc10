//! What each stage of a pipeline does, in order.

mod orders;
#[cfg(test)]
mod tests;

use crate::Error;
use crate::play::play;
pub use orders::MAX_ACTIONS;
use std::collections::HashSet;
use std::fmt;

/// Which way a micro-batch goes through a chunk of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// From input to output.
    Forward,
    /// From the gradient of the output to that of the input.
    Backward,
}

/// One thing that a stage does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Action {
    /// Which way.
    pub work: Work,
    /// Which micro-batch.
    pub micro_batch: usize,
    /// Which of the stage's chunks of layers; chunk `c` of stage `s` of `n` is part `c · n + s` of the model.
    pub chunk: usize,
}

/// `forward 3`, or `forward 3, chunk 1` where it is not the first chunk.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let work = match self.work {
            Work::Forward => "forward",
            Work::Backward => "backward",
        };
        write!(f, "{work} {}", self.micro_batch)?;
        match self.chunk {
            0 => Ok(()),
            chunk => write!(f, ", chunk {chunk}"),
        }
    }
}

/// What every stage does, in order. Activations go from each part of the model to the next, gradients back.
///
/// Stages that receive what an action needs, wait for it, do it and send on what it gives, in this order and without waiting for
/// whoever receives it, come to the end: [`check`](Self::check) proves it for schedules that were made elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// How many micro-batches there are.
    pub micro_batches: usize,
    /// How many chunks of layers each stage has.
    pub chunks: usize,
    /// The actions of each stage.
    pub stages: Vec<Vec<Action>>,
}

impl Schedule {
    /// How many parts the model is cut into.
    pub fn parts(&self) -> usize {
        self.chunks * self.stages.len()
    }

    /// The part of the model that is this chunk of this stage.
    pub fn part(&self, stage: usize, chunk: usize) -> usize {
        chunk * self.stages.len() + stage
    }

    /// The stage and the chunk that a part of the model is.
    pub fn place(&self, part: usize) -> (usize, usize) {
        (part % self.stages.len(), part / self.stages.len())
    }

    /// Where the input of an action is from: a stage, perhaps the same, and what it does there.
    ///
    /// The forward of the first part has none, it reads the batch. The backward of the last part follows its own forward.
    pub fn input(&self, stage: usize, action: Action) -> Option<(usize, Action)> {
        let part = self.part(stage, action.chunk);
        match action.work {
            Work::Forward => Some(self.on(part.checked_sub(1)?, action)),
            Work::Backward if part + 1 == self.parts() => {
                let work = Work::Forward;
                Some((stage, Action { work, ..action }))
            }
            Work::Backward => Some(self.on(part + 1, action)),
        }
    }

    /// Where the output of an action goes: a stage, perhaps the same, and what it does with it.
    ///
    /// The backward of the first part has nowhere to send. The forward of the last part is followed by its own backward.
    pub fn output(&self, stage: usize, action: Action) -> Option<(usize, Action)> {
        let part = self.part(stage, action.chunk);
        match action.work {
            Work::Forward if part + 1 == self.parts() => {
                let work = Work::Backward;
                Some((stage, Action { work, ..action }))
            }
            Work::Forward => Some(self.on(part + 1, action)),
            Work::Backward => Some(self.on(part.checked_sub(1)?, action)),
        }
    }

    fn on(&self, part: usize, action: Action) -> (usize, Action) {
        let (stage, chunk) = self.place(part);
        (stage, Action { chunk, ..action })
    }

    /// How many micro-batches of how many chunks each stage keeps the activations of, at most: those that went forward and not yet back.
    pub fn peaks(&self) -> Vec<usize> {
        let peak = |actions: &Vec<Action>| {
            let mut kept = 0_usize;
            let counts = actions.iter().map(|action| {
                kept = match action.work {
                    Work::Forward => kept + 1,
                    Work::Backward => kept.saturating_sub(1),
                };
                kept
            });
            counts.max().unwrap_or(0)
        };
        self.stages.iter().map(peak).collect()
    }

    /// Checks that every micro-batch goes through every part forward and back, exactly once, and that no stage waits forever.
    ///
    /// # Errors
    /// What is missing, is there twice, does not belong there, or which stages wait for each other.
    pub fn check(&self) -> Result<(), Error> {
        for stage in 0..self.stages.len() {
            self.check_stage(stage)?;
        }
        play(self, |_, _| 0.0, 0.0).map(drop)
    }

    fn check_stage(&self, stage: usize) -> Result<(), Error> {
        let mut seen = HashSet::new();
        for &action in &self.stages[stage] {
            if action.chunk >= self.chunks || action.micro_batch >= self.micro_batches {
                return Err(Error::Unknown { stage, action });
            }
            if !seen.insert(action) {
                return Err(Error::Twice { stage, action });
            }
        }
        match self.all_actions().find(|action| !seen.contains(action)) {
            None => Ok(()),
            Some(action) => Err(Error::Missing { stage, action }),
        }
    }

    /// Everything that a stage has to do, in no order that works.
    fn all_actions(&self) -> impl Iterator<Item = Action> {
        let (chunks, micro_batches) = (self.chunks, self.micro_batches);
        [Work::Forward, Work::Backward]
            .into_iter()
            .flat_map(move |work| {
                (0..chunks).flat_map(move |chunk| {
                    (0..micro_batches).map(move |micro_batch| Action {
                        work,
                        micro_batch,
                        chunk,
                    })
                })
            })
    }
}
