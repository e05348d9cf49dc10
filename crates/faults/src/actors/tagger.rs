//! Somebody who tags a step, so that it stays.

use super::{Actor, Process, come_late};
use crate::scenario::Scenario;
use crate::world::World;
use cairn_checkpoint::{Checkpointer, Error, World as Ranks, tags};
use std::sync::Arc;
use std::time::Duration;

/// When steps are tagged, at the latest.
const LATEST: Duration = Duration::from_secs(3);

struct Tagger(u64);

/// The taggers of a scenario.
pub(super) fn all(scenario: &Scenario) -> Vec<Box<dyn Actor>> {
    (0..scenario.taggings)
        .map(|number| Box::new(Tagger(number)) as Box<dyn Actor>)
        .collect()
}

impl Actor for Tagger {
    fn live(&self, world: &Arc<World>) {
        come_late(world, LATEST);
        let process = Process::start(world, format!("tagger{}", self.0));
        if let Err(error) = tag_some(&process) {
            process.note(&format!("cannot tag: {error}"));
        }
    }
}

fn tag_some(process: &Process) -> Result<(), Error> {
    let ranks = Ranks::new(0, 1, "tagger").expect("rank 0 of 1").unique();
    let steps = Checkpointer::new(process.store(), ranks).steps()?;
    if steps.is_empty() {
        return Ok(());
    }
    let step = process.world.lock().random.pick(&steps);
    tags::tag(&process.store(), step, "kept")?;
    if process.is_alive() {
        process.note(&format!("is told that step {step} has its tag"));
        process.world.lock().ledger.tagged.insert(step);
    }
    Ok(())
}
