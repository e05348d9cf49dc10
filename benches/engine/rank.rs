//! One rank as a process of its own, driven line by line through its standard input.

use crate::work::{Layout, Specs, allocate};
use crate::{Job, files, limits};
use cairn::checkpoint::{
    Checkpointer, LoadOptions, Peers, SaveOptions, State, Target, World, testing,
};
use cairn::store::{AlignedBuffer, Local};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// The processes of all ranks.
pub(crate) struct Ranks(Vec<(Child, ChildStdin, BufReader<ChildStdout>)>);

impl Ranks {
    /// Starts them and waits until each has its state in memory.
    pub(crate) fn start(job: &Job) -> Self {
        let spawn = |rank: usize| {
            let mut child = Command::new(std::env::current_exe().expect("this program"))
                .arg("rank")
                .arg(&job.directory)
                .args([
                    job.gigabytes.to_string(),
                    job.ranks.to_string(),
                    rank.to_string(),
                ])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process for each rank");
            let stdin = child.stdin.take().expect("piped");
            let stdout = BufReader::new(child.stdout.take().expect("piped"));
            (child, stdin, stdout)
        };
        let mut ranks = Self((0..job.ranks).map(spawn).collect());
        ranks.wait();
        ranks
    }

    /// Tells all ranks to do something, and returns the seconds until the last is done.
    pub(crate) fn all(&mut self, command: &str) -> f64 {
        self.count(command).0
    }

    /// As [`Ranks::all`], and returns what the ranks count, added up.
    pub(crate) fn count(&mut self, command: &str) -> (f64, u64) {
        let start = Instant::now();
        for (_, stdin, _) in &mut self.0 {
            writeln!(stdin, "{command}").expect("the rank listens");
        }
        let counted = self.wait();
        (start.elapsed().as_secs_f64(), counted)
    }

    fn wait(&mut self) -> u64 {
        let mut counted = 0;
        for (_, _, stdout) in &mut self.0 {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("the rank answers");
            let number = line.trim().strip_prefix("done ").expect("an answer");
            counted += number.parse::<u64>().expect("a number");
        }
        counted
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for (child, _, _) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The life of a rank: `write`, `save STEP`, `bare STEP` (without checksums), `load STEP`, `read STEP`, `columns STEP ROUND` (a load of
/// columns, together with the other ranks), until its input ends. It answers with the bytes it read.
#[expect(clippy::print_stdout, reason = "answers to the parent process")]
pub(crate) fn serve(job: &Job, rank: usize) {
    let mut rank = Rank::new(job, rank);
    println!("done 0");
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or_default();
        let mut number = || {
            words
                .next()
                .map_or(0, |word| word.parse().expect("a number"))
        };
        let (step, round) = (number(), number());
        println!("done {}", rank.obey(command, step, round));
    }
}

/// A process with its part of the state.
struct Rank {
    rank: usize,
    job: Job,
    specs: Specs,
    memory: BTreeMap<String, AlignedBuffer>,
    /// The layout and memory of loads of columns, made by the first of them.
    columns: Option<(Specs, BTreeMap<String, AlignedBuffer>)>,
    checkpointer: Checkpointer,
}

impl Rank {
    fn new(job: &Job, rank: usize) -> Self {
        let specs = Layout::Rows(job.ranks).specs(job.gigabytes);
        let session = format!("bench {}", std::os::unix::process::parent_id());
        let world = World::new(rank, job.ranks, session)
            .expect("a rank of the world")
            .unique();
        let store = Arc::new(Local::new(job.directory.join("run")));
        Self {
            rank,
            job: job.clone(),
            memory: allocate(&specs, rank),
            specs,
            columns: None,
            checkpointer: Checkpointer::new(store, world),
        }
    }

    /// Does what it is told, and returns the bytes it read.
    fn obey(&mut self, command: &str, step: u64, round: u64) -> u64 {
        let raw = self.job.directory.join(format!("raw-{}", self.rank));
        let run = self.job.directory.join("run");
        match command {
            "write" => {
                let len: usize = self.memory.values().map(|bytes| bytes.len()).sum();
                limits::write(&raw, len as u64);
            }
            "clean" => files::remove_file(&raw),
            "read" => limits::read(&files::data(&run, step)[self.rank..=self.rank]),
            "save" | "bare" => {
                testing::skip_checksums(command == "bare");
                self.save(step);
            }
            "load" => {
                let (specs, memory) = (&self.specs, &mut self.memory);
                let options = LoadOptions::default();
                return load(&self.checkpointer, step, self.rank, specs, memory, &options);
            }
            "columns" => return self.load_columns(step, round),
            other => panic!("unknown command `{other}`"),
        }
        0
    }

    fn save(&self, step: u64) {
        let mut state = State::new(self.rank);
        for (name, bytes) in &self.memory {
            let added = state.tensor(name, &self.specs[name], bytes);
            added.expect("the rank's own part");
        }
        let saving = self
            .checkpointer
            .save(step, &state, &SaveOptions::default());
        saving.expect("captured").wait().expect("committed");
    }

    fn load_columns(&mut self, step: u64, round: u64) -> u64 {
        let (rank, ranks) = (self.rank, self.job.ranks);
        let token = format!("{} {round}", std::os::unix::process::parent_id());
        let options = LoadOptions {
            peers: Some(Peers::new(rank, (0..ranks).collect(), token)),
            ..LoadOptions::default()
        };
        let (specs, memory) = self.columns.get_or_insert_with(|| {
            let specs = Layout::Columns(ranks).specs(self.job.gigabytes);
            let memory = allocate(&specs, rank);
            (specs, memory)
        });
        load(&self.checkpointer, step, rank, specs, memory, &options)
    }
}

/// Loads a rank's part of everything, and returns the bytes read.
fn load(
    checkpointer: &Checkpointer,
    step: u64,
    rank: usize,
    specs: &Specs,
    memory: &mut BTreeMap<String, AlignedBuffer>,
    options: &LoadOptions,
) -> u64 {
    let targets = memory.iter_mut().map(|(name, bytes)| {
        Target::new(name, &specs[name], rank, bytes).expect("the rank's own part")
    });
    let checkpoint = checkpointer.open(step).expect("a committed step");
    let loaded = checkpoint.load(targets.collect(), options);
    loaded.expect("intact").cost.read_bytes
}
