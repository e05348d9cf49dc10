//! Who lives in a world: launches of ranks that save, readers, pruners, compactors, taggers and keepers.
//!
//! Whoever else works on runs is added here: something with a process of its own, which uses the real code over the
//! simulated store and tells the ledger what it was promised.

mod compactor;
mod keeper;
mod launch;
mod pruner;
mod reader;
mod tagger;

use crate::disk::ProcessId;
use crate::scheduler::{SimulatedClock, sleep};
use crate::store::SimulatedStore;
use crate::world::{DURABLE, Tier, World};
use cairn_checkpoint::Clock;
use cairn_store::{Store, Tiered};
use shuttle::thread;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use launch::resume_uploads;
pub(crate) use pruner::ABANDONED_AFTER;
pub(crate) use reader::read_newest;

/// Somebody who lives in a world, on a thread of their own.
pub(crate) trait Actor: Send {
    /// Does what they do, to the end.
    fn live(&self, world: &Arc<World>);
}

/// A process of a world.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) world: Arc<World>,
    pub(crate) id: ProcessId,
    /// The node it runs on.
    pub(crate) node: usize,
}

impl Process {
    /// Starts a process that faults can strike.
    pub(crate) fn start(world: &Arc<World>, name: String) -> Self {
        let id = world.start(name, false);
        Self {
            world: world.clone(),
            id,
            node: 0,
        }
    }

    /// A process that no fault strikes.
    pub(crate) fn immune(world: &Arc<World>, name: &str) -> Self {
        let id = world.start(name.to_string(), true);
        Self {
            world: world.clone(),
            id,
            node: 0,
        }
    }

    /// The same on another node.
    pub(crate) fn on_node(self, node: usize) -> Self {
        Self { node, ..self }
    }

    /// The same on a machine that others share, if there are such.
    pub(crate) fn on_machine_of(self, rank: usize) -> Self {
        let machines = self.world.case.scenario.keepers;
        let machine = rank.checked_rem(machines);
        self.world.lock().processes[self.id].machine = machine;
        self
    }

    /// The run as this process sees it: one store, or its tiers.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let Some(tiers) = self.world.case.scenario.tiers else {
            return self.tier(DURABLE);
        };
        let (fast, durable) = (self.fast(), self.tier(DURABLE));
        Arc::new(match tiers.nodes {
            0 => Tiered::new(fast, durable),
            _ => Tiered::per_node(fast, durable),
        })
    }

    /// The fast tier of its node.
    pub(crate) fn fast(&self) -> Arc<dyn Store> {
        self.tier(1 + self.node % self.world.case.scenario.fast_tiers())
    }

    /// One tier alone.
    pub(crate) fn tier(&self, tier: Tier) -> Arc<dyn Store> {
        Arc::new(SimulatedStore {
            world: self.world.clone(),
            process: self.id,
            tier,
        })
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SimulatedClock {
            world: self.world.clone(),
            process: self.id,
        })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.world.lock().processes[self.id].is_alive
    }

    /// It has done what it does.
    pub(crate) fn exit(&self) {
        self.world.lock().processes[self.id].has_exited = true;
    }

    /// Whether nothing has gone wrong for it.
    pub(crate) fn is_unharmed(&self) -> bool {
        let state = self.world.lock();
        let process = &state.processes[self.id];
        process.is_alive && process.faults == 0
    }

    pub(crate) fn note(&self, text: &str) {
        self.world.note(self.id, text);
    }
}

/// Lets everybody live, and waits until all of them are done.
pub(crate) fn live(world: &Arc<World>) {
    let actors: Vec<Box<dyn Actor>> = launch::all(&world.case.scenario)
        .into_iter()
        .chain(reader::all(&world.case.scenario))
        .chain(pruner::all(&world.case.scenario))
        .chain(compactor::all(&world.case.scenario))
        .chain(tagger::all(&world.case.scenario))
        .collect();
    let keepers = keeper::start(world);
    let threads: Vec<_> = actors
        .into_iter()
        .map(|actor| {
            let world = world.clone();
            thread::spawn(move || actor.live(&world))
        })
        .collect();
    for thread in threads {
        thread.join().expect("actors do not panic");
    }
    world.lock().is_ending = true;
    for thread in keepers {
        thread.join().expect("keepers do not panic");
    }
    // They hold the world, and the world holds them.
    world.lock().keepers.clear();
}

/// Comes at some time in the first seconds.
fn come_late(world: &World, most: Duration) {
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    let wait = world.lock().random.below(micros);
    sleep(world, Duration::from_micros(wait));
}
