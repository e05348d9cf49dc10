//! Processes that are killed while they train, all at once or one of them, at any moment.

use super::mpirun;
use crate::fixture::Place;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What marks all processes of one job, in their environment.
const MARK: &str = "CAIRN_TEST_JOB";

/// How long anything may take that is waited for.
const LONG: Duration = Duration::from_secs(120);

/// Long enough that nobody is done before it is killed, and with a rate that does not depend on it.
const LONG_RUN: [&str; 4] = ["--set", "steps=60", "--set", "learning_rate.shape=constant"];

/// The mesh of the runs whose bits are compared.
const FOUR: [&str; 2] = ["--mesh", "dp=2,pp=2"];

/// A job of `mpirun`, to be killed.
struct Job {
    mpirun: Child,
    mark: String,
}

impl Job {
    fn start(place: &Place, args: &[&str]) -> Self {
        let mark = place.path("").to_string_lossy().into_owned();
        let mpirun = mpirun(place, args)
            .env(MARK, &mark)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { mpirun, mark }
    }

    /// The processes of the job that live, by rank.
    fn ranks(&self) -> BTreeMap<usize, u32> {
        let processes = fs::read_dir("/proc").unwrap();
        let numbers = processes.filter_map(|entry| {
            let name = entry.ok()?.file_name();
            name.to_str()?.parse::<u32>().ok()
        });
        let rank = |process: u32| {
            let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
            let variables = environment.split(|byte| *byte == 0);
            let variables: Vec<&str> = variables
                .filter_map(|variable| str::from_utf8(variable).ok())
                .collect();
            let value = |name: &str| {
                let mut named = variables.iter().filter_map(|text| text.split_once('='));
                named.find(|(key, _)| *key == name).map(|(_, value)| value)
            };
            let is_ours = value(MARK)? == self.mark;
            let rank = value("OMPI_COMM_WORLD_RANK")?.parse().ok()?;
            is_ours.then_some((rank, process))
        };
        numbers.filter_map(rank).collect()
    }

    /// Waits until no process is left.
    fn wait_until_gone(&self) {
        let begun = Instant::now();
        while !self.ranks().is_empty() {
            assert!(begun.elapsed() < LONG, "left: {:?}", self.ranks());
            sleep(Duration::from_millis(5));
        }
    }

    /// Kills everything at once, as when a machine loses its power.
    fn kill_all(mut self) {
        let ranks = self.ranks();
        assert_eq!(ranks.len(), 4, "{ranks:?}");
        self.mpirun.kill().unwrap();
        ranks.into_values().for_each(kill);
        self.mpirun.wait().unwrap();
        self.wait_until_gone();
    }

    /// Kills one rank; returns what the rest of the job says before it ends.
    fn kill_rank(self, rank: usize) -> String {
        kill(self.ranks()[&rank]);
        self.wait_until_gone();
        let output = self.mpirun.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        text
    }
}

fn kill(process: u32) {
    // One that is gone already need not be killed.
    let _ = Command::new("kill")
        .args(["-KILL", &process.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Any moment of a step or a save.
fn a_moment() {
    let milliseconds = RandomState::new().hash_one("moment") % 60;
    sleep(Duration::from_millis(milliseconds));
}

impl Place {
    /// Trains to the end without a disturbance, as the run `whole`.
    fn train_whole(&self) {
        let whole = ["--set", "checkpoints.folder=whole"];
        self.json(&[&["train", "run.toml"], &FOUR[..], &LONG_RUN, &whole].concat());
    }

    /// Goes on to the end with other ranks, and checks that losses have the bits of the run `whole` up to there, and are nearly the same from then on.
    fn end_elsewhere(&self) {
        let args = ["train", "run.toml", "--mesh", "tp=2,dp=3"];
        let rest = self.json(&[&args, &LONG_RUN[..]].concat());
        let same = usize::try_from(rest["resumed_from"].as_u64().unwrap()).unwrap();
        assert!((10..60).contains(&same), "{rest}");
        assert_eq!(self.steps("run"), (1..=60).collect::<Vec<_>>());
        let (whole, run) = (self.losses("whole"), self.losses("run"));
        assert_eq!(whole[..same], run[..same]);
        for (one, other) in whole.iter().zip(run) {
            assert!((one - other).abs() < 1e-3, "{one} {other}");
        }
        let verified = self.output(&["verify", "run:60", "--read-data"]);
        assert_eq!(verified.status.code(), Some(0));
    }
}

#[test]
fn processes_that_are_killed_again_and_again_go_on_to_the_same_bits() {
    let place = Place::with_config();
    place.train_whole();
    let args = [&FOUR[..], &LONG_RUN].concat();
    for step in [3, 13] {
        let job = Job::start(&place, &args);
        place.wait_for("run", step);
        a_moment();
        job.kill_all();
    }
    // As threads, which are killed, too.
    let mut threads = place.start(&args);
    place.wait_for("run", 23);
    a_moment();
    threads.kill().unwrap();
    threads.wait().unwrap();
    let told = mpirun(&place, &[&args[..], &["--set", "steps=40"]].concat())
        .output()
        .unwrap();
    assert!(told.status.success(), "{told:?}");
    assert_eq!(place.steps("run"), (1..=40).collect::<Vec<_>>());
    place.end_elsewhere();
}

#[test]
fn a_rank_of_many_processes_that_is_killed_is_named_and_ends_them_all() {
    let place = Place::with_config();
    place.train_whole();
    let args = [&FOUR[..], &LONG_RUN].concat();
    for (rank, step) in [(2, 3), (0, 13)] {
        let job = Job::start(&place, &args);
        place.wait_for("run", step);
        a_moment();
        let told = job.kill_rank(rank);
        assert!(told.contains(&format!("rank {rank} ")), "{told}");
    }
    place.end_elsewhere();
}
