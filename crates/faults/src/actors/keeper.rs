//! Keepers: one on each machine, which takes captures and ends the saves of those who die.

use super::Process;
use crate::defect::Defect;
use crate::fault::{Kind, Operation};
use crate::ledger::{Capture, CaptureEnd, Promise};
use crate::scheduler::{pass, sleep};
use crate::world::{Fate, State, World};
use cairn_checkpoint::keeper::{Keeper, Snapshot};
use cairn_checkpoint::{Level, step_folder};
use cairn_keeper::Limits;
use cairn_keeper::testing::{Heard, Left, Simulated, Way};
use shuttle::thread::{self, JoinHandle};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a keeper waits for the other writers of a step.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(40);
/// How long it keeps what is safe and belongs to nobody.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// How often it looks who is gone: at first, and when nothing happens.
const SHORT_PAUSE: Duration = Duration::from_millis(1);
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// How long it takes until one that died runs again, in milliseconds.
const RESTARTS: [u64; 3] = [1, 300, 20_000];
/// The memory it takes: enough.
const MAX_BYTES: u64 = 1 << 40;

/// Starts the keepers of a world, which stay until it ends.
pub(super) fn start(world: &Arc<World>) -> Vec<JoinHandle<()>> {
    let machines = 0..world.case.scenario.keepers;
    machines
        .map(|machine| {
            let world = world.clone();
            thread::spawn(move || live(&world, machine))
        })
        .collect()
}

/// The keeper of the machine that a rank runs on, as its process sees it.
pub(super) fn client(process: &Process, rank: usize) -> Option<Arc<dyn Keeper>> {
    let machine = rank.checked_rem(process.world.case.scenario.keepers)?;
    let line = Line {
        process: process.clone(),
        machine,
        coming: Mutex::default(),
    };
    Some(Arc::new(Simulated::client(Arc::new(line))))
}

/// Runs a keeper, and another one whenever it dies.
fn live(world: &Arc<World>, machine: usize) {
    let mut number = 0;
    while !world.lock().is_ending {
        let process = Process::start(world, format!("K{machine}.{number}"));
        let process = process.on_node(machine).on_machine_of(machine);
        serve(&process, machine);
        let mut state = world.lock();
        let pause = state.random.pick(&RESTARTS);
        drop(state);
        sleep(world, Duration::from_millis(pause));
        number += 1;
    }
}

/// Serves until the process dies, or nobody is left whom it could serve.
fn serve(process: &Process, machine: usize) {
    let world = &process.world;
    let limits = Limits {
        max_bytes: MAX_BYTES,
        max_run_bytes: MAX_BYTES,
    };
    let keeper = Simulated::new(process.id, limits, process.clock());
    world.lock().keepers.insert(machine, keeper.clone());
    let (mut pause, mut ending) = (SHORT_PAUSE, Vec::new());
    while process.is_alive() {
        let is_ending = world.lock().is_ending;
        let left = keeper.gone(is_ending);
        pause = match left.is_empty() {
            true => (pause * 2).min(LONG_PAUSE),
            false => SHORT_PAUSE,
        };
        for left in left {
            let (process, keeper) = (process.clone(), keeper.clone());
            ending.push(thread::spawn(move || end(&process, &keeper, &left)));
        }
        keeper.forget(FORGET_AFTER);
        if is_ending {
            break;
        }
        sleep(world, pause);
    }
    for thread in ending {
        thread.join().expect("keepers do not panic");
    }
}

/// Ends the save of somebody who is gone, and writes down what came of it.
fn end(process: &Process, keeper: &Simulated, left: &Left) {
    let world = &process.world;
    if world.defect == Some(Defect::OrphansForgotten) {
        return;
    }
    let about = left.about();
    let (step, writer) = (about.step, about.writer);
    process.note(&format!("ends step {step} for writer {writer}"));
    let is_stopping = || !process.is_alive();
    let result = keeper.end(left, process.store(), COMMIT_TIMEOUT, &is_stopping);
    if !process.is_alive() {
        return;
    }
    let text = match &result {
        Ok(()) => format!("has ended step {step} for writer {writer}"),
        Err(reason) => format!("cannot end step {step} for writer {writer}: {reason}"),
    };
    process.note(&text);
    let is_per_node = world.case.scenario.is_per_node();
    let mut state = world.lock();
    if result.is_ok() {
        promise(&mut state, process, about, is_per_node);
    }
    let now = state.now;
    let failed = format!("{}/{}/FAILED", step_folder(step), about.attempt);
    let is_given_up = state.disks.iter().any(|disk| disk.exists(&failed));
    if let Some(capture) = { &mut state.ledger.captures }.get_mut(&(process.id, left.snapshot())) {
        capture.at = now;
        capture.end = match result {
            Ok(()) => CaptureEnd::Ended,
            Err(reason) => CaptureEnd::Stuck {
                reason,
                is_given_up,
            },
        };
    }
}

/// What a keeper has ended is as safe as what a rank was told is.
fn promise(state: &mut State, process: &Process, about: &Snapshot, is_per_node: bool) {
    let (step, attempt) = (about.step, about.attempt.clone());
    if is_per_node {
        let parts = state.ledger.parts.entry((step, attempt)).or_default();
        parts.insert(about.writer);
        return;
    }
    let level = match process.world.case.scenario.tiers {
        Some(_) => Level::Local,
        None => Level::Durable,
    };
    let who = state.processes[process.id].name.clone();
    state.ledger.promises.push(Promise {
        who,
        step,
        attempt,
        level,
    });
}

/// What lies between a rank and the keeper of its machine.
#[derive(Debug)]
struct Line {
    process: Process,
    machine: usize,
    /// What strikes when the keeper has done what it was asked; never held while another thread can run.
    coming: Mutex<Option<Fate>>,
}

impl Line {
    /// Whether both sides run.
    fn holds(&self, keeper: usize) -> bool {
        let state = self.process.world.lock();
        state.processes[self.process.id].is_alive && state.processes[keeper].is_alive
    }

    fn coming(&self, fate: Option<Fate>) -> Option<Fate> {
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut coming, fate)
    }
}

impl Way for Line {
    fn keeper(&self) -> Option<Arc<Simulated>> {
        let state = self.process.world.lock();
        let keeper = state.keepers.get(&self.machine)?;
        let both = [self.process.id, keeper.process()];
        let is_alive = both.iter().all(|id| state.processes[*id].is_alive);
        is_alive.then(|| keeper.clone())
    }

    fn says(&self, keeper: usize, what: &str) -> bool {
        pass();
        let world = &self.process.world;
        let mut state = world.lock();
        let fate = state.fate(self.process.id, Operation::Message);
        if fate != Fate::Dies {
            let name = state.processes[keeper].name.clone();
            state.note(self.process.id, &format!("says to {name}: {what}"));
        }
        drop(state);
        match fate {
            Fate::Works | Fate::Twice => {}
            Fate::Waits(duration) => sleep(world, duration),
            Fate::FailsAfter | Fate::DiesAfter(_) => drop(self.coming(Some(fate))),
            Fate::FailsBefore(_) | Fate::Dies => return false,
        }
        self.holds(keeper)
    }

    fn answers(&self, keeper: usize) -> bool {
        let coming = self.coming(None);
        if let Some(Fate::DiesAfter(kind @ (Kind::Kill { .. } | Kind::Crash { .. }))) = coming {
            self.process.world.lock().die(self.process.id, kind);
        }
        pass();
        coming.is_none() && self.holds(keeper)
    }

    fn is_alive(&self) -> bool {
        let state = self.process.world.lock();
        let process = &state.processes[self.process.id];
        process.is_alive && !process.has_exited
    }

    fn wait(&self) {
        sleep(&self.process.world, SHORT_PAUSE);
    }

    fn heard(&self, keeper: usize, snapshot: u64, heard: Heard<'_>) {
        let State { ledger, now, .. } = &mut *self.process.world.lock();
        let captures = &mut ledger.captures;
        let end = match heard {
            Heard::Captured(about) => {
                let capture = Capture {
                    about: about.clone(),
                    end: CaptureEnd::Open,
                    at: *now,
                };
                captures.insert((keeper, snapshot), capture);
                return;
            }
            Heard::Committed => CaptureEnd::Committed,
            Heard::Abandoned => CaptureEnd::Abandoned,
        };
        if let Some(capture) = captures.get_mut(&(keeper, snapshot)) {
            (capture.end, capture.at) = (end, *now);
        }
    }
}
