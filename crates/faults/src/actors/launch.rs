//! Launches: ranks that go on from the newest step and save the next ones.

mod start;

use super::{Actor, Process, come_late, keeper, read_newest};
use crate::content::{self, Memory};
use crate::defect::Defect;
use crate::ledger::{Promise, Told};
use crate::scenario::Scenario;
use crate::world::World;
use cairn_checkpoint::{
    Checkpointer, Error, IfCommitted, Level, Options, Overlap, SaveOptions, SaveReport, Saving,
    World as Ranks,
};
use shuttle::thread;
use start::{Start, choose};
use std::sync::Arc;
use std::time::Duration;

/// How long a rank waits for the others.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a rank waits for the files of the others on the durable tier.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a rank waits for the others if they may be waiting for uploads.
const LONG_TIMEOUT: Duration = Duration::from_secs(30);
/// How long ranks leave the commit to rank 0.
const TAKEOVER: Duration = Duration::from_millis(500);
/// When a launch that does not wait for the one before begins, at the latest.
const LATEST: Duration = Duration::from_millis(500);
/// How often a launch tries to find where to go on.
const TRIES: usize = 3;
/// What tells the state of a later moment from that of an earlier one.
const LATER: u64 = 500;

/// Launches that follow each other.
struct Launches(Vec<Launch>);

#[derive(Debug, Clone, Copy)]
struct Launch {
    number: usize,
    ranks: usize,
}

/// The launches of a scenario: one actor if they follow each other, else one for each.
pub(super) fn all(scenario: &Scenario) -> Vec<Box<dyn Actor>> {
    let launches = scenario.launches.iter().enumerate();
    let launches = launches.map(|(number, ranks)| Launch {
        number,
        ranks: *ranks,
    });
    let launches: Vec<Launch> = launches.collect();
    match scenario.overlapping {
        true => launches
            .into_iter()
            .map(|launch| Box::new(Launches(vec![launch])) as Box<dyn Actor>)
            .collect(),
        false => vec![Box::new(Launches(launches))],
    }
}

impl Actor for Launches {
    fn live(&self, world: &Arc<World>) {
        for launch in &self.0 {
            come_late(world, LATEST);
            launch.run(world);
        }
    }
}

impl Launch {
    /// A rank of it, as its launcher names it.
    fn ranks_of(self, process: &Process, rank: usize) -> Ranks {
        let world = &process.world;
        if !world.case.scenario.same_name {
            let session = format!("launch-{}", self.number);
            let ranks = Ranks::new(rank, self.ranks, session);
            return ranks.expect("a rank of its launch").unique();
        }
        let ranks = Ranks::new(rank, self.ranks, "job").expect("a rank of its launch");
        match world.defect == Some(Defect::NamesTakenForUnique) {
            true => ranks.unique(),
            false => ranks.with_process(format!("process-{}", process.id)),
        }
    }

    fn run(self, world: &Arc<World>) {
        let Some(start) = self.start(world) else {
            return;
        };
        let threads: Vec<_> = (0..self.ranks)
            .map(|rank| {
                let process = Process::start(world, format!("L{}r{rank}", self.number));
                let start = start.clone();
                let process = process.on_node(rank).on_machine_of(rank);
                thread::spawn(move || {
                    Rank::new(self, rank, process.clone()).save_all(&start);
                    process.exit();
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("ranks do not panic");
        }
    }

    /// Where it goes on: after the newest step, or after one that it chose. `None` if that cannot be found out.
    fn start(self, world: &Arc<World>) -> Option<Start> {
        if world.case.scenario.is_per_node() {
            resume_uploads(world, |node| {
                Process::start(world, format!("L{}n{node}", self.number))
            });
        }
        let mut tries = (0..TRIES).map(|_| {
            let process = Process::start(world, format!("L{}", self.number)).on_machine_of(0);
            let keeper = keeper::client(&process, 0);
            read_newest(&process, keeper)
        });
        let newest = tries.find_map(Result::ok)?;
        if world.case.scenario.back {
            let process = Process::start(world, format!("L{}", self.number)).on_machine_of(0);
            return choose(&process).ok();
        }
        Some(Start {
            first: newest.map_or(0, |(_, step)| step) + 1,
            from: None,
        })
    }
}

/// Uploads what earlier launches left on the fast tiers, from every node; says which nodes could not, and why.
pub(crate) fn resume_uploads(
    world: &Arc<World>,
    start: impl Fn(usize) -> Process,
) -> Vec<(usize, Arc<Error>)> {
    let nodes = world.case.scenario.fast_tiers();
    let threads: Vec<_> = (0..nodes)
        .map(|node| {
            let process = start(node).on_node(node);
            thread::spawn(move || {
                let ranks = Ranks::new(node, nodes, "uploads")
                    .expect("a node of all")
                    .unique();
                let run = Checkpointer::with_options(process.store(), ranks, options(&process));
                let resumed = run.resume_uploads().map_err(Arc::new);
                resumed.and_then(|()| run.wait_uploads())
            })
        })
        .collect();
    let ended = threads.into_iter().map(|thread| thread.join());
    let ended = ended.map(|ended| ended.expect("uploads do not panic"));
    { ended.enumerate() }
        .filter_map(|(node, ended)| Some((node, ended.err()?)))
        .collect()
}

/// How a process of the world saves.
fn options(process: &Process) -> Options {
    let scenario = &process.world.case.scenario;
    Options {
        commit_timeout: match scenario.tiers {
            Some(_) => LONG_TIMEOUT,
            None => COMMIT_TIMEOUT,
        },
        upload_timeout: UPLOAD_TIMEOUT,
        keep_fast: scenario.tiers.map(|tiers| tiers.keep_fast),
        takeover: TAKEOVER,
        capture_threads: 1,
        overlap: match scenario.queued {
            true => Overlap::Queue(1),
            false => Overlap::Wait,
        },
        delta: scenario.delta,
        compress: scenario.compress,
        clock: process.clock(),
        ..Options::default()
    }
}

/// One rank of a launch.
struct Rank {
    launch: Launch,
    rank: usize,
    process: Process,
    run: Checkpointer,
    save: SaveOptions,
}

impl Rank {
    fn new(launch: Launch, rank: usize, process: Process) -> Self {
        let scenario = &process.world.case.scenario;
        let ranks = launch.ranks_of(&process, rank);
        let options = Options {
            keeper: keeper::client(&process, rank),
            ..options(&process)
        };
        let if_committed = match scenario.replace {
            true => IfCommitted::Replace,
            false => IfCommitted::Refuse,
        };
        Self {
            launch,
            rank,
            run: Checkpointer::with_options(process.store(), ranks, options),
            process,
            save: SaveOptions {
                if_committed,
                ..SaveOptions::default()
            },
        }
    }

    fn save_all(&self, start: &Start) {
        let scenario = &self.process.world.case.scenario;
        if let Some(from) = &start.from {
            self.run.resumed_from(from);
        }
        let first = start.first;
        let mut queued: Option<Saving> = None;
        let mut uploading = Vec::new();
        for step in first..first + scenario.steps {
            let begun = match self.throws(step) {
                Some(error) => Err(error),
                None => self.begin(step, &self.memory(step, 0)),
            };
            uploading.extend(begun.as_ref().ok().cloned());
            let fine = match begun {
                Ok(saving) if scenario.queued => match queued.replace(saving) {
                    Some(before) => self.wait(&before),
                    None => true,
                },
                Ok(saving) => self.wait(&saving),
                Err(error) => {
                    self.tell(step, &error);
                    false
                }
            };
            let fine = fine || (scenario.retries && !scenario.queued && self.try_again(step));
            if !self.process.is_alive() || (!fine && !scenario.stubborn) {
                break;
            }
        }
        if let Some(last) = queued {
            self.wait(&last);
        }
        if scenario.tiers.is_some() {
            uploading.iter().for_each(|saving| self.wait_upload(saving));
        }
    }

    /// What it saves as a step, at a later moment of which more is counted.
    fn memory(&self, step: u64, moment: u64) -> Memory {
        let content = content::number(self.launch.number, step) + moment;
        let picture = content::picture(content, step, self.process.world.case.scenario.delta);
        self.process.note(&format!("saves step {step}"));
        Memory::new(content, picture, self.rank, self.launch.ranks)
    }

    /// Whether an exception strikes in a call of `save` before the state is taken: the attempt is given up for all ranks.
    fn throws(&self, step: u64) -> Option<Error> {
        let percent = self.process.world.case.scenario.throws;
        if percent == 0 || !self.process.world.lock().random.chance(percent) {
            return None;
        }
        let reason = "an exception".to_string();
        let attempt = self.run.attempts(step);
        self.run.give_up_attempt(step, attempt, &reason);
        Some(Error::GivenUp { reason })
    }

    /// Saves a step once more, with the state of a later moment.
    fn try_again(&self, step: u64) -> bool {
        if !self.process.is_alive() {
            return false;
        }
        match self.begin(step, &self.memory(step, LATER)) {
            Ok(saving) => self.wait(&saving),
            Err(error) => {
                self.tell(step, &error);
                false
            }
        }
    }

    /// Begins to save a step. Who is told of an earlier one that failed saves again, or says that it will not.
    fn begin(&self, step: u64, memory: &Memory) -> Result<Saving, Error> {
        loop {
            match self.run.save(step, &memory.state(), &self.save) {
                Err(Error::PreviousSave { .. }) if self.process.world.case.scenario.stubborn => {}
                // It stays on the fast tier, and is tried again.
                Err(Error::NotUploaded { .. }) if self.process.is_alive() => {}
                Err(error @ Error::PreviousSave { .. }) => {
                    self.run.give_up(step, &error.to_string());
                    return Err(error);
                }
                result => return result,
            }
        }
    }

    /// Waits for a save and writes down what it was told; says whether that was good.
    fn wait(&self, saving: &Saving) -> bool {
        let level = match self.process.world.case.scenario.tiers {
            Some(_) => Level::Local,
            None => Level::Durable,
        };
        let outcome = saving.wait_for(level);
        match &outcome {
            Ok(()) => self.promised(level, saving.outcome()),
            Err(error) => self.tell(saving.step(), error),
        }
        let tiers = self.process.world.case.scenario.tiers;
        if tiers.is_some_and(|tiers| tiers.eager) {
            self.wait_upload(saving);
        }
        outcome.is_ok()
    }

    /// Waits until what was saved is on the durable tier.
    fn wait_upload(&self, saving: &Saving) {
        if saving.outcome().is_none() {
            return;
        }
        match saving.wait() {
            Ok(report) => self.promised(Level::Durable, Some(report)),
            Err(error) => self.tell_upload(saving.step(), &error),
        }
    }

    /// Writes down what the rank was promised.
    fn promised(&self, level: Level, report: Option<SaveReport>) {
        let Some(report) = report.filter(|_| self.process.is_alive()) else {
            return;
        };
        let (step, attempt) = (report.step, report.attempt);
        let mut state = self.process.world.lock();
        if level == Level::Local && self.process.world.case.scenario.is_per_node() {
            state.note(
                self.process.id,
                &format!("is told that its part of step {step} is on its node"),
            );
            let parts = state.ledger.parts.entry((step, attempt)).or_default();
            parts.insert(self.rank);
            return;
        }
        let safe = match level {
            Level::Durable => "safe",
            _ => "on the fast tier",
        };
        let text = format!("is told that step {step} is {safe}");
        state.note(self.process.id, &text);
        let who = state.processes[self.process.id].name.clone();
        state.ledger.promises.push(Promise {
            who,
            step,
            attempt,
            level,
        });
    }

    /// Writes down that a step stays on the fast tier for now.
    fn tell_upload(&self, step: u64, error: &Error) {
        if self.process.is_alive() {
            let text = format!("is told that step {step} is not uploaded: {error}");
            self.process.note(&text);
            let mut state = self.process.world.lock();
            state.ledger.not_uploaded.push((step, text));
        }
    }

    fn tell(&self, step: u64, error: &Error) {
        if !self.process.is_alive() {
            return;
        }
        self.process
            .note(&format!("is told that step {step} is not safe: {error}"));
        let mut state = self.process.world.lock();
        let told = Told {
            process: self.process.id,
            launch: self.launch.number,
            rank: self.rank,
            step,
            at: state.now,
            reason: error.to_string(),
            is_taken: matches!(error, Error::StepTaken { .. } | Error::Meeting(_)),
            missing: match error {
                Error::WritersMissing { missing, .. } => missing.clone(),
                _ => Vec::new(),
            },
        };
        state.ledger.failures.push(told);
    }
}
