//! Where a launch goes on: after the newest step, or after one that it chose.

use super::super::Process;
use cairn_checkpoint::{Checkpoint, Checkpointer, Error, World as Ranks};
use std::sync::Arc;

/// Where a launch goes on.
#[derive(Debug, Clone)]
pub(super) struct Start {
    /// The first step it saves.
    pub(super) first: u64,
    /// What its ranks load and say so.
    pub(super) from: Option<Arc<Checkpoint>>,
}

/// The step that a launch chose, half the time the newest; where there is none, the beginning.
pub(super) fn choose(process: &Process) -> Result<Start, Error> {
    let ranks = Ranks::new(0, 1, "chooser").expect("rank 0 of 1").unique();
    let run = Checkpointer::new(process.store(), ranks);
    let chosen = match run.steps()? {
        steps if steps.is_empty() => None,
        steps => {
            let mut state = process.world.lock();
            let (newest, any) = (state.random.chance(50), state.random.pick(&steps));
            Some(any).filter(|_| !newest)
        }
    };
    let from = match chosen {
        Some(step) => Checkpoint::open(process.store(), step)?,
        None => match run.latest() {
            Ok(latest) => latest.checkpoint,
            Err(Error::NothingUsable { .. }) => {
                return Ok(Start {
                    first: 1,
                    from: None,
                });
            }
            Err(error) => return Err(error),
        },
    };
    process.note(&format!("goes on from step {}", from.step()));
    Ok(Start {
        first: from.step() + 1,
        from: Some(Arc::new(from)),
    })
}
