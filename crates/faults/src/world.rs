//! The state of one simulated world: its time, its disk, its processes, and what is still to go wrong.
//!
//! All threads of all processes run one at a time. Whenever one of them takes a lock, sends, waits or asks the store, the
//! [scheduler](crate::scheduler) decides who goes next, so a seed decides everything that happens.

use crate::defect::Defect;
use crate::disk::{Disk, ProcessId};
use crate::fault::{Fault, Kind, Operation};
use crate::ledger::Ledger;
use crate::random::Random;
use crate::scenario::Case;
use crate::trace::Trace;
use cairn_checkpoint::{COMMIT, parse_step_folder};
use cairn_keeper::testing::Simulated;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest an operation takes, in microseconds.
const MAX_LATENCY_MICROS: u64 = 3000;

/// A tier, by the number of its disk.
pub(crate) type Tier = usize;

/// The durable tier, or the only store there is.
pub(crate) const DURABLE: Tier = 0;

/// What stands before the keys of a tier in a trace.
pub(crate) fn label(tier: Tier) -> String {
    match tier {
        DURABLE => String::new(),
        fast => format!("fast{fast}:"),
    }
}

/// One world.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) case: Case,
    pub(crate) defect: Option<Defect>,
    /// Never held while another thread can run.
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) random: Random,
    pub(crate) now: Duration,
    /// Threads that sleep, by number, and until when.
    pub(crate) asleep: BTreeMap<usize, Duration>,
    /// What each tier lies on: the durable one first, then the fast one, or that of each node.
    pub(crate) disks: Vec<Disk>,
    pub(crate) processes: Vec<ProcessState>,
    pub(crate) trace: Trace,
    pub(crate) ledger: Ledger,
    /// The keeper that runs on each machine, or ran last.
    pub(crate) keepers: BTreeMap<usize, Arc<Simulated>>,
    /// Everybody else is done.
    pub(crate) is_ending: bool,
    /// Operations so far.
    operations: u64,
    /// Faults that have not happened yet.
    coming: Vec<Fault>,
    /// Operations that still find the disk full.
    full: u64,
}

#[derive(Debug)]
pub(crate) struct ProcessState {
    pub(crate) name: String,
    /// The machine it shares with others, and loses power with them.
    pub(crate) machine: Option<usize>,
    pub(crate) is_alive: bool,
    /// It came to its end by itself.
    pub(crate) has_exited: bool,
    /// Faults pass it by.
    pub(crate) is_immune: bool,
    /// How far its clock is off, in seconds.
    pub(crate) clock_offset: i64,
    /// Faults that it met.
    pub(crate) faults: u64,
    /// It could not leave word that it failed.
    pub(crate) is_muted: bool,
}

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It does what it should.
    Works,
    /// It has its effect and fails all the same.
    FailsAfter,
    /// It fails.
    FailsBefore(Failure),
    /// It happens twice; the second answer counts.
    Twice,
    /// It works, after so long.
    Waits(Duration),
    /// Its process is dead, or dies before it.
    Dies,
    /// Its process dies when it has had its effect.
    DiesAfter(Kind),
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Broken,
    Full,
    Conflict,
}

impl World {
    pub(crate) fn new(case: Case, defect: Option<Defect>) -> Arc<Self> {
        let state = State {
            random: Random::new(case.seed, "world"),
            now: Duration::ZERO,
            asleep: BTreeMap::new(),
            disks: (0..=case.scenario.fast_tiers())
                .map(|_| Disk::default())
                .collect(),
            processes: Vec::new(),
            trace: Trace::default(),
            ledger: Ledger {
                is_shared: case.scenario.delta,
                ..Ledger::default()
            },
            keepers: BTreeMap::new(),
            is_ending: false,
            operations: 0,
            coming: case.faults.clone(),
            full: 0,
        };
        Arc::new(Self {
            case,
            defect,
            state: Mutex::new(state),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process.
    pub(crate) fn start(&self, name: String, is_immune: bool) -> ProcessId {
        let mut state = self.lock();
        state.processes.push(ProcessState {
            name,
            machine: None,
            is_alive: true,
            has_exited: false,
            is_immune,
            clock_offset: 0,
            faults: 0,
            is_muted: false,
        });
        state.processes.len() - 1
    }

    /// Says something in the trace.
    pub(crate) fn note(&self, process: ProcessId, text: &str) {
        self.lock().note(process, text);
    }
}

impl State {
    pub(crate) fn note(&mut self, process: ProcessId, text: &str) {
        let who = self.processes[process].name.clone();
        self.trace.line(self.now, &who, text);
    }

    /// Writes down which attempt is committed, if that is what was put at `key`.
    pub(crate) fn look_at_commit(&mut self, tier: Tier, key: &str) {
        let step = key
            .strip_suffix(&format!("/{COMMIT}"))
            .and_then(parse_step_folder);
        let manifest = self.disks[tier]
            .read(key)
            .map(serde_json::from_slice::<Value>);
        if let (Some(step), Some(Ok(manifest))) = (step, manifest)
            && let Some(attempt) = manifest["attempt"].as_str()
        {
            let line = manifest["line"].as_u64().unwrap_or(0);
            self.ledger.commit((line, step), attempt, tier);
        }
    }

    /// Counts an operation and decides what happens to it.
    pub(crate) fn fate(&mut self, process: ProcessId, operation: Operation) -> Fate {
        if !self.processes[process].is_alive {
            return Fate::Dies;
        }
        self.now += Duration::from_micros(1 + self.random.below(MAX_LATENCY_MICROS));
        if self.processes[process].is_immune {
            return Fate::Works;
        }
        self.operations += 1;
        if operation == Operation::Write && self.full > 0 {
            self.full -= 1;
            self.processes[process].faults += 1;
            return Fate::FailsBefore(Failure::Full);
        }
        let due = |fault: &Fault| fault.at < self.operations && fault.kind.fits(operation);
        let Some(index) = self.coming.iter().position(due) else {
            return Fate::Works;
        };
        let fault = self.coming.remove(index);
        if !matches!(fault.kind, Kind::KeeperKilled { .. }) {
            self.processes[process].faults += 1;
        }
        self.ledger.happened.push(fault.kind);
        self.note(process, &format!("! {}", fault.kind));
        self.befall(process, fault.kind)
    }

    fn befall(&mut self, process: ProcessId, kind: Kind) -> Fate {
        match kind {
            Kind::Kill { after: true } | Kind::Crash { after: true, .. } => Fate::DiesAfter(kind),
            Kind::Kill { .. }
            | Kind::Crash { .. }
            | Kind::PowerLoss { .. }
            | Kind::FastLost { .. } => {
                self.die(process, kind);
                Fate::Dies
            }
            Kind::NoSpace { operations } => {
                self.full = operations - 1;
                Fate::FailsBefore(Failure::Full)
            }
            Kind::Fails => Fate::FailsBefore(Failure::Broken),
            Kind::Conflict => Fate::FailsBefore(Failure::Conflict),
            Kind::AnswerLost => Fate::FailsAfter,
            Kind::Twice => Fate::Twice,
            Kind::Hang { seconds } => Fate::Waits(Duration::from_secs(seconds)),
            Kind::ClockJump { seconds } => {
                self.processes[process].clock_offset += seconds;
                Fate::Works
            }
            Kind::KeeperKilled { machine } => {
                if let Some(keeper) = self.keepers.get(&machine) {
                    self.processes[keeper.process()].is_alive = false;
                }
                Fate::Works
            }
            Kind::BitRot => {
                let State { disks, random, .. } = self;
                let tier = match disks.len() {
                    1 => DURABLE,
                    count => random.index(count),
                };
                if let Some(path) = disks[tier].rot(random) {
                    let label = label(tier);
                    self.note(process, &format!("! a bit of `{label}{path}` flips"));
                    self.ledger.rotted.insert((tier, path));
                }
                Fate::Works
            }
        }
    }

    /// A process, and those that end with it because their machine does.
    fn beside(&self, process: ProcessId, kind: Kind) -> Vec<ProcessId> {
        let machine = self.processes[process].machine;
        let is_machine = machine.is_some() && matches!(kind, Kind::Crash { .. });
        let others = self.processes.iter().enumerate();
        others
            .filter(|(id, other)| *id == process || (is_machine && other.machine == machine))
            .map(|(id, _)| id)
            .collect()
    }

    /// Ends a process, or all of them, and loses what the kind of end loses.
    pub(crate) fn die(&mut self, process: ProcessId, kind: Kind) {
        let beside = self.beside(process, kind);
        let State { disks, random, .. } = self;
        for disk in disks.iter_mut() {
            match kind {
                Kind::Crash { loss, .. } => {
                    for victim in &beside {
                        disk.lose(Some(*victim), loss, random);
                    }
                }
                Kind::PowerLoss { loss } => disk.lose(None, loss, random),
                _ => {}
            }
        }
        if let Kind::FastLost { tier } = kind {
            if let Some(disk) = disks.get_mut(tier) {
                *disk = Disk::default();
            }
            self.ledger.lose_fast();
        }
        let all = matches!(kind, Kind::PowerLoss { .. } | Kind::FastLost { .. });
        for (id, other) in self.processes.iter_mut().enumerate() {
            if beside.contains(&id) || (all && !other.is_immune) {
                other.is_alive = false;
            }
        }
    }
}
