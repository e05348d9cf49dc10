//! One rank as a process of its own, driven line by line through its standard input.

use crate::work::{Layout, allocate};
use crate::{Job, files, limits};
use cairn::checkpoint::{Checkpointer, LoadOptions, SaveOptions, State, Target, World, testing};
use cairn::store::Local;
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
        let start = Instant::now();
        for (_, stdin, _) in &mut self.0 {
            writeln!(stdin, "{command}").expect("the rank listens");
        }
        self.wait();
        start.elapsed().as_secs_f64()
    }

    fn wait(&mut self) {
        for (_, _, stdout) in &mut self.0 {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("the rank answers");
            assert_eq!(line.trim(), "done");
        }
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

/// The life of a rank: `write`, `save STEP`, `bare STEP` (without checksums), `load STEP`, `read STEP`, until its input ends.
#[expect(clippy::print_stdout, reason = "answers to the parent process")]
pub(crate) fn serve(job: &Job, rank: usize) {
    let specs = Layout::Rows(job.ranks).specs(job.gigabytes);
    let mut memory = allocate(&specs, rank);
    let len: usize = memory.values().map(Vec::len).sum();
    let run = job.directory.join("run");
    let session = format!("bench {}", std::os::unix::process::parent_id());
    let world = World::new(rank, job.ranks, session).expect("a rank of the world");
    let checkpointer = Checkpointer::new(Arc::new(Local::new(&run)), world);
    let raw = job.directory.join(format!("raw-{rank}"));
    println!("done");
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let (command, step) = line.split_once(' ').unwrap_or((&line, "0"));
        let step: u64 = step.parse().expect("a step");
        match command {
            "write" => limits::write(&raw, len as u64),
            "clean" => files::remove_file(&raw),
            "read" => limits::read(&files::data(&run, step)[rank..=rank]),
            "save" | "bare" => {
                testing::skip_checksums(command == "bare");
                let mut state = State::new(rank);
                for (name, bytes) in &memory {
                    state
                        .tensor(name, &specs[name], bytes)
                        .expect("the rank's own part");
                }
                let saving = checkpointer.save(step, &state, &SaveOptions::default());
                saving.expect("captured").wait().expect("committed");
            }
            "load" => {
                let targets = memory.iter_mut().map(|(name, bytes)| {
                    Target::new(name, &specs[name], rank, bytes).expect("the rank's own part")
                });
                let checkpoint = checkpointer.open(step).expect("a committed step");
                let loaded = checkpoint.load(targets.collect(), &LoadOptions::default());
                loaded.expect("intact");
            }
            other => panic!("unknown command `{other}`"),
        }
        println!("done");
    }
}
