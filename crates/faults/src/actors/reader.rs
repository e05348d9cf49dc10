//! Somebody who loads the newest step, and checks what comes.

use super::{Actor, Process, come_late};
use crate::content::{Loaded, load_options};
use crate::ledger::{Place, Rule};
use crate::scenario::{Keeping, Scenario};
use crate::world::World;
use cairn_checkpoint::keeper::Keeper;
use cairn_checkpoint::{Checkpointer, Error, Options, World as Ranks};
use std::sync::Arc;
use std::time::Duration;

/// When readings happen, at the latest.
const LATEST: Duration = Duration::from_secs(3);

struct Reader(u64);

/// The readers of a scenario.
pub(super) fn all(scenario: &Scenario) -> Vec<Box<dyn Actor>> {
    (0..scenario.readings)
        .map(|number| Box::new(Reader(number)) as Box<dyn Actor>)
        .collect()
}

impl Actor for Reader {
    fn live(&self, world: &Arc<World>) {
        come_late(world, LATEST);
        let process = Process::start(world, format!("reader{}", self.0));
        let _ = read_newest(&process, None);
    }
}

/// Loads the newest step and returns its place in the history of the run, with what a keeper holds; `Ok(None)` if there is none. What comes must be whole, and no older than what was promised before.
///
/// # Errors
/// If the process met a fault.
pub(crate) fn read_newest(
    process: &Process,
    keeper: Option<Arc<dyn Keeper>>,
) -> Result<Option<Place>, Error> {
    let promised = process.world.lock().ledger.newest_promise();
    let ranks = Ranks::new(0, 1, "reader").expect("rank 0 of 1").unique();
    let options = Options {
        keeper,
        ..Options::default()
    };
    let run = Checkpointer::with_options(process.store(), ranks, options);
    let mut loaded = Loaded::new();
    let result = run
        .load_latest(loaded.targets(), &load_options())
        .map(|(latest, _)| latest.checkpoint);
    let found = match &result {
        Ok(checkpoint) => {
            let step = checkpoint.step();
            process.world.lock().ledger.check(Rule::Bytes);
            match loaded.difference(checkpoint) {
                Ok(None) => process.note(&format!("loads step {step}")),
                Ok(Some(text)) => violate(process, &format!("step {step} loads, but {text}")),
                // Met a fault, or the step goes away right now.
                Err(_) => {}
            }
            Some((checkpoint.manifest().line, step))
        }
        Err(Error::NothingUsable { .. }) => None,
        Err(error) => {
            process.note(&format!("cannot load: {error}"));
            if process.is_unharmed() {
                violate(
                    process,
                    &format!("a reader that met no fault fails: {error}"),
                );
            }
            None
        }
    };
    let keeping = process.world.case.scenario.keeping;
    if process.is_unharmed() && keeping != Keeping::LaggingObjects {
        process.world.lock().ledger.check(Rule::Newest);
        // What has rotted meanwhile was promised in vain.
        let promised =
            promised.and_then(|most| process.world.lock().ledger.newest_promise_until(most));
        if let Some(promised) = promised.filter(|place| found < Some(*place)) {
            let text =
                format!("step {promised:?} was promised, but the newest that loads is {found:?}");
            violate(process, &text);
        }
    }
    match result {
        Ok(_) | Err(Error::NothingUsable { .. }) => Ok(found),
        Err(error) => Err(error),
    }
}

fn violate(process: &Process, text: &str) {
    process.note(&format!("✗ {text}"));
    process.world.lock().ledger.violate(text.to_string());
}
