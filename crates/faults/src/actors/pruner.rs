//! Somebody who deletes old steps and rubbish.

use super::{Actor, Process, come_late};
use crate::defect::Defect;
use crate::scenario::{Keeping, Scenario};
use crate::scheduler::sleep;
use crate::store::MAX_LAG;
use crate::world::{State, World};
use cairn_checkpoint::retention::{self, Keep};
use cairn_checkpoint::{Checkpoint, Error, all_steps, step_folder};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Attempts that nobody touched for so long are rubbish.
pub(crate) const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// When prunings happen, at the latest; some wait until hanging ranks are taken for dead.
const LATEST: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(5000)];

/// How long a pruning waits when it is planned, at the most, in milliseconds.
const LONGEST_THOUGHTS: [u64; 3] = [1, 100, 5000];

struct Pruner(u64);

/// The pruners of a scenario.
pub(super) fn all(scenario: &Scenario) -> Vec<Box<dyn Actor>> {
    (0..scenario.prunings)
        .map(|number| Box::new(Pruner(number)) as Box<dyn Actor>)
        .collect()
}

impl Actor for Pruner {
    fn live(&self, world: &Arc<World>) {
        let latest = world.lock().random.pick(&LATEST);
        come_late(world, latest);
        let process = Process::start(world, format!("pruner{}", self.0));
        if let Err(error) = prune(&process) {
            process.note(&format!("cannot prune: {error}"));
        }
    }
}

fn prune(process: &Process) -> Result<(), Error> {
    let world = &process.world;
    let keep_last = world.case.scenario.keep_last;
    let store = process.store();
    let delete = |folder: String| -> Result<(), Error> {
        let mut found = store.list(&folder).unwrap_or_default();
        found.sort_by(|a, b| b.key.cmp(&a.key));
        for meta in found {
            let _ = store.delete(&meta.key);
        }
        Ok(())
    };
    if world.defect == Some(Defect::PruneByNumber) {
        let mut steps = all_steps(store.as_ref())?;
        steps.truncate(steps.len().saturating_sub(keep_last));
        let attempt = |step: &u64| {
            let checkpoint = Checkpoint::open(store.clone(), *step).ok()?;
            Some((*step, checkpoint.manifest().attempt.clone()))
        };
        remove(world, &steps.iter().filter_map(attempt).collect());
        return steps
            .into_iter()
            .try_for_each(|step| delete(step_folder(step)));
    }
    let keep = Keep {
        last: keep_last,
        // Where listings lag behind, a pruner may not see yet what refers to a file.
        grace: match world.case.scenario.keeping {
            Keeping::LaggingObjects => MAX_LAG,
            _ => Duration::ZERO,
        },
        ..Keep::default()
    };
    let now = process.clock().now();
    let plan = retention::plan(&store, &keep, Some(ABANDONED_AFTER), now)?;
    if process.is_alive() {
        let steps: Vec<u64> = plan.remove.keys().copied().collect();
        process.note(&format!("prunes steps {steps:?} and {:?}", plan.leftovers));
        remove(world, &plan.remove);
        let leftovers = plan.leftovers.iter().cloned();
        world.lock().ledger.abandoned.extend(leftovers);
    }
    hesitate(world);
    if world.defect == Some(Defect::PrunePartsFirst) {
        let folders = plan.remove.keys().map(|step| step_folder(*step));
        return folders.into_iter().try_for_each(delete);
    }
    retention::prune(store.as_ref(), &plan).map(drop)
}

/// Thinks a plan over, for a while.
fn hesitate(world: &World) {
    let mut state = world.lock();
    let most = state.random.pick(&LONGEST_THOUGHTS);
    let wait = state.random.below(1 + most);
    drop(state);
    sleep(world, Duration::from_millis(wait));
}

/// Writes down what is about to be removed.
fn remove(world: &World, steps: &BTreeMap<u64, String>) {
    let State { ledger, disks, .. } = &mut *world.lock();
    let is_committed = |step| {
        let key = format!("{}/COMMIT", step_folder(step));
        disks.iter().any(|disk| disk.exists(&key))
    };
    ledger.remove(steps, is_committed);
}
