//! Ranks that are real processes are killed at random moments while they save to a real folder.
//!
//! After every death the newest step is loaded and compared byte by byte, no step that a rank reported as committed is gone, and
//! the next launch, mostly of another size, goes on from there. In the end every step is compared. Every other launch lends its
//! state to `save`, the rest have it captured in the background and change it right behind the fence. The ranks are
//! `examples/rank.rs`.

use cairn::checkpoint::all_steps;
use cairn::store::Local;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How many processes are killed in all.
const KILLS: usize = 240;
/// How often one run is killed before it may end in peace.
const LAUNCHES: u64 = 8;
/// A deadline that nothing but a hung test reaches.
const PATIENCE_MS: u64 = 60_000;
/// A deadline for the ranks that wait for a dead one.
const SHORT_MS: u64 = 300;

/// A small random-number generator, so that a failure can be repeated as far as time allows.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// The example's program, which lies beside the folder of this test's program.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let program = profile.join("examples/rank");
    let missing = "`cargo build --example rank` builds it, in the profile of this test";
    assert!(
        program.exists(),
        "{} is missing: {missing}",
        program.display()
    );
    program
}

/// One rank of a launch, and what it says on its way.
struct Rank {
    child: Child,
    errors: JoinHandle<String>,
}

/// All ranks of a launch.
struct Launch {
    ranks: Vec<Rank>,
    lines: Receiver<String>,
    /// The newest step a rank reported as committed.
    committed: u64,
}

/// How a launch ended.
struct Ended {
    committed: u64,
    succeeded: bool,
    errors: String,
}

impl Launch {
    fn start(
        run: &Path,
        session: &str,
        world: u64,
        steps: u64,
        deadline_ms: u64,
        flags: &[&str],
    ) -> Self {
        let (sender, lines) = channel();
        let start = |rank: u64| {
            let mut child = Command::new(program())
                .arg(run)
                .args([rank, world].map(|number| number.to_string()))
                .args([session, &steps.to_string(), "--resume", "--deadline-ms"])
                .arg(deadline_ms.to_string())
                .args(flags)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            let sender = sender.clone();
            thread::spawn(move || {
                for line in output.lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
            let mut stderr = child.stderr.take().unwrap();
            let errors = thread::spawn(move || {
                let mut text = String::new();
                stderr.read_to_string(&mut text).unwrap();
                text
            });
            Rank { child, errors }
        };
        Self {
            ranks: (0..world).map(start).collect(),
            lines,
            committed: 0,
        }
    }

    /// Waits until `count` lines were printed, or every rank has ended.
    fn read(&mut self, count: u64) {
        for _ in 0..count {
            let patience = Duration::from_millis(2 * PATIENCE_MS);
            let Ok(line) = self.lines.recv_timeout(patience) else {
                return;
            };
            let (word, step) = line.split_once(' ').unwrap();
            let step = step.parse().unwrap();
            assert!(matches!(word, "committed" | "resumed"), "{line}");
            self.committed = self.committed.max(step);
        }
    }

    /// Kills one rank, or all of them, and returns how many were alive.
    fn kill(&mut self, victim: Option<usize>) -> usize {
        let mut killed = 0;
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            let spared = victim.is_some_and(|victim| victim != index);
            if !spared && rank.child.try_wait().unwrap().is_none() {
                rank.child.kill().unwrap();
                killed += 1;
            }
        }
        killed
    }

    fn end(mut self) -> Ended {
        let mut ended = Ended {
            committed: 0,
            succeeded: true,
            errors: String::new(),
        };
        for rank in std::mem::take(&mut self.ranks) {
            let mut child = rank.child;
            ended.succeeded &= child.wait().unwrap().success();
            ended.errors.push_str(&rank.errors.join().unwrap());
        }
        self.read(u64::MAX);
        ended.committed = self.committed;
        ended
    }
}

impl Drop for Launch {
    /// A test that fails leaves no processes behind.
    fn drop(&mut self) {
        self.kill(None);
    }
}

/// Loads the newest step whole, in one process, and returns which it is. With the flag `--all` it loads the older ones, too.
fn newest(run: &Path, seed: u64, flags: &[&str]) -> u64 {
    let ended = Launch::start(run, "check", 1, 0, PATIENCE_MS, flags).end();
    assert!(ended.succeeded, "seed {seed}: {}", ended.errors);
    ended.committed
}

/// Whether the run has a step that was begun after the newest committed one.
fn is_torn(run: &Path, newest: u64) -> bool {
    let steps = all_steps(&Local::new(run)).unwrap();
    steps.last().is_some_and(|last| *last > newest)
}

/// What the killing of a run did.
#[derive(Default)]
struct Killed {
    processes: usize,
    /// How often a save was cut short.
    torn: usize,
}

/// Kills launches of one run, and lets the last one end.
fn kill_a_run(random: &mut Random, seed: u64, killed: &mut Killed) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = folder.path().join("run");
    let mut known = 0;
    for launch in 0..LAUNCHES {
        let world = 2 + random.below(3);
        let one = (random.below(4) == 0).then(|| random.below(world));
        let deadline_ms = if one.is_some() { SHORT_MS } else { PATIENCE_MS };
        let session = format!("launch-{launch}");
        let flags: &[&str] = if launch % 2 == 0 { &["--fenced"] } else { &[] };
        let mut ranks = Launch::start(&run, &session, world, 1000, deadline_ms, flags);
        // Up to all have resumed; beyond that, they have saved.
        ranks.read(random.below(3 * world));
        thread::sleep(Duration::from_micros(random.below(60_000)));
        killed.processes += ranks.kill(one.and_then(|rank| rank.try_into().ok()));
        let ended = ranks.end();
        let words = ["is waiting for writers", "have not come to this run"];
        let of_the_dead = |line: &str| words.iter().any(|word| line.contains(word));
        let mut errors = ended.errors.lines();
        let expected = errors.all(|line| one.is_some() && of_the_dead(line));
        assert!(expected, "seed {seed}: {}", ended.errors);
        let newest = newest(&run, seed, &[]);
        let reported = ended.committed.max(known);
        assert!(
            newest >= reported,
            "seed {seed}: step {reported} is gone, the newest is {newest}"
        );
        killed.torn += usize::from(is_torn(&run, newest));
        known = newest;
    }
    let last = Launch::start(&run, "last", 2, 3, PATIENCE_MS, &["--fenced"]).end();
    assert!(last.succeeded, "seed {seed}: {}", last.errors);
    assert_eq!(newest(&run, seed, &["--all"]), known + 3, "seed {seed}");
}

#[test]
fn killed_ranks_lose_no_committed_step_and_the_next_launch_goes_on() {
    let seed = RandomState::new().hash_one(0);
    let mut random = Random(seed);
    let mut killed = Killed::default();
    while killed.processes < KILLS {
        kill_a_run(&mut random, seed, &mut killed);
    }
    assert!(
        killed.torn > KILLS / 20,
        "only {} saves were cut short",
        killed.torn
    );
}
