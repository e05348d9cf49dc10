//! Somebody who makes the newest step stand alone.

use super::{Actor, Process, come_late};
use crate::scenario::Scenario;
use crate::world::{DURABLE, World};
use cairn_checkpoint::{Checkpointer, Error, World as Ranks, compact};
use std::sync::Arc;
use std::time::Duration;

/// When compactions happen, at the latest.
const LATEST: Duration = Duration::from_secs(3);

struct Compactor(u64);

/// The compactors of a scenario.
pub(super) fn all(scenario: &Scenario) -> Vec<Box<dyn Actor>> {
    (0..scenario.compactions)
        .map(|number| Box::new(Compactor(number)) as Box<dyn Actor>)
        .collect()
}

impl Actor for Compactor {
    fn live(&self, world: &Arc<World>) {
        come_late(world, LATEST);
        let process = Process::start(world, format!("compact{}", self.0));
        if let Err(error) = compact_newest(&process, self.0) {
            process.note(&format!("cannot compact: {error}"));
        }
    }
}

fn compact_newest(process: &Process, number: u64) -> Result<(), Error> {
    let ranks = Ranks::new(0, 1, format!("compactor {number}"))
        .expect("rank 0 of 1")
        .unique();
    let run = Checkpointer::new(process.tier(DURABLE), ranks.clone());
    let Some(step) = run.steps()?.pop() else {
        return Ok(());
    };
    // Another attempt takes the place of the one that was promised.
    process.world.lock().ledger.rewritten.insert(step);
    process.note(&format!("compacts step {step}"));
    compact(&process.tier(DURABLE), step, &ranks, &Arc::default()).map(drop)
}
