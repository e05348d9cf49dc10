//! Many cases, on several threads; what fails is run again with less and less in it.

use crate::actors;
use crate::defect::Defect;
use crate::fault::{Fault, Kind};
use crate::judge::judge;
use crate::ledger::Rule;
use crate::scenario::Case;
use crate::scheduler::{Seeded, Stage};
use crate::world::World;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

/// Loading and committing need more than a coroutine has by default.
const STACK_BYTES: usize = 512 << 10;
/// More than any case takes: who is not done by then will never be.
const MAX_STEPS: usize = 3_000_000;

/// What came of a case.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The case.
    pub case: Case,
    /// The rules it broke, in words.
    pub violations: Vec<String>,
    /// Faults that happened.
    pub faults: Vec<Kind>,
    /// How often each rule was checked.
    pub checks: BTreeMap<Rule, u64>,
    /// Times that a rank was told that its step is safe.
    pub promises: usize,
    /// Times that a rank was told that it is not.
    pub failures: usize,
    /// One number for everything that happened: equal in every run of the case.
    pub hash: u64,
    /// What happened, line by line.
    pub trace: Vec<String>,
}

/// What came of many cases.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// How many there were.
    pub cases: u64,
    /// How often each kind of fault happened, by its name.
    pub faults: BTreeMap<&'static str, u64>,
    /// How often each rule was checked.
    pub checks: BTreeMap<Rule, u64>,
    /// Times that a rank was told that its step is safe.
    pub promises: u64,
    /// Times that a rank was told that it is not.
    pub failures: u64,
    /// One number for all cases, whatever thread they ran on.
    pub hash: u64,
    /// Those that broke a rule, by seed.
    pub broken: Vec<Outcome>,
}

/// Runs one case.
pub fn run_case(case: &Case, defect: Option<Defect>) -> Outcome {
    let mut cases = Some(case.clone());
    let (sender, outcomes) = channel();
    run_all(
        move || cases.take().map(|case| World::new(case, defect)),
        &sender,
    );
    outcomes.try_recv().expect("one case has one outcome")
}

/// Runs the cases of `seeds` on so many threads; `progress` is told how many are done, and what came of the last.
pub fn run_seeds(
    seeds: Range<u64>,
    threads: usize,
    defect: Option<Defect>,
    progress: &dyn Fn(u64, &Outcome),
) -> Summary {
    let next = Arc::new(AtomicU64::new(seeds.start));
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        let (sender, outcomes) = channel();
        for _ in 0..threads.max(1) {
            let (next, sender) = (next.clone(), sender.clone());
            let world = move || {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                (seed < seeds.end).then(|| World::new(Case::draw(seed), defect))
            };
            scope.spawn(move || run_all(world, &sender));
        }
        drop(sender);
        for outcome in outcomes {
            progress(summary.cases + 1, &outcome);
            summary.add(outcome);
        }
    });
    summary.broken.sort_by_key(|outcome| outcome.case.seed);
    summary
}

/// The same failure with as few faults and as little else as it needs.
pub fn minimise(outcome: &Outcome, defect: Option<Defect>) -> Outcome {
    let mut least = outcome.clone();
    loop {
        let case = &least.case;
        let fewer = (0..case.faults.len()).map(|index| {
            let mut faults: Vec<Fault> = case.faults.clone();
            faults.remove(index);
            Case {
                faults,
                ..case.clone()
            }
        });
        let smaller = case.scenario.smaller().into_iter().map(|scenario| Case {
            scenario,
            ..case.clone()
        });
        let tried = fewer.chain(smaller).map(|case| run_case(&case, defect));
        let still_broken = { tried }.find(|outcome| !outcome.violations.is_empty());
        match still_broken {
            Some(outcome) => least = outcome,
            None => return least,
        }
    }
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.cases += 1;
        for fault in &outcome.faults {
            *self.faults.entry(fault.name()).or_default() += 1;
        }
        for (rule, times) in &outcome.checks {
            *self.checks.entry(*rule).or_default() += times;
        }
        self.promises += outcome.promises as u64;
        self.failures += outcome.failures as u64;
        // A sum, so that the order in which threads finish does not matter.
        self.hash = self.hash.wrapping_add(outcome.hash);
        if !outcome.violations.is_empty() {
            self.broken.push(outcome);
        }
    }
}

/// Runs worlds until there are no more. One that panics is an outcome, too.
fn run_all(next: impl FnMut() -> Option<Arc<World>> + Send + 'static, done: &Sender<Outcome>) {
    let stage = Stage::new(next);
    loop {
        let runner = Runner::new(Seeded::new(stage.clone()), config());
        let (current, sender) = (stage.clone(), done.clone());
        let run = move || {
            let world = current.current().expect("a world runs");
            actors::live(&world);
            judge(&world);
            world.lock().ledger.check(Rule::Ends);
            let _ = sender.send(outcome(&world));
        };
        let ended = catch_unwind(AssertUnwindSafe(|| runner.run(run)));
        match (ended, stage.current()) {
            (Err(panic), Some(world)) => {
                let text = format!("it does not end: {}", text_of(panic.as_ref()));
                world.lock().ledger.violate(text);
                let _ = done.send(outcome(&world));
            }
            _ => return,
        }
    }
}

fn outcome(world: &World) -> Outcome {
    let mut state = world.lock();
    let hash = state.trace.hash();
    let violations = state.ledger.violations.clone();
    Outcome {
        case: world.case.clone(),
        faults: state.ledger.happened.clone(),
        checks: state.ledger.checks.clone(),
        promises: state.ledger.promises.len(),
        failures: state.ledger.failures.len(),
        hash,
        trace: state.trace.take(),
        violations,
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
    config.silence_warnings = true;
    config
}
