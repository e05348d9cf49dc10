//! A trainer that is a process of its own, and a keeper that is: both are this test's program, started again.

use crate::world::{self, Sharded};
use cairn_checkpoint::{Bytes, Checkpointer, Options, Pace, Promise, SaveOptions, State, World};
use cairn_keeper::{Client, Limits, Server, ServerOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The variable that makes the test below something else than a test: its words are what it should be.
const ROLE: &str = "CAIRN_KEEPER_TEST_ROLE";

/// A process that is killed when the test is over.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this program as something else.
    pub(crate) fn start(role: &[&str]) -> Self {
        let mut child = command(role).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Starts one rank of a launch.
    pub(crate) fn rank(
        socket: &Path,
        run: &Path,
        place: [usize; 2],
        how: &str,
        steps: u64,
    ) -> Self {
        let [rank, world] = place.map(|number| number.to_string());
        let (socket, run) = (socket.to_str().unwrap(), run.to_str().unwrap());
        let steps = steps.to_string();
        Self::start(&["rank", socket, run, &rank, &world, how, &steps])
    }

    /// Waits until it says `word`.
    pub(crate) fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if line.trim_end() == word {
                return;
            }
            line.clear();
        }
        panic!("it ended without `{word}`: {:?}", self.child.wait());
    }

    /// Ends it as the system does when memory runs out.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it ends well.
    pub(crate) fn join(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program as something else.
pub(crate) fn command(role: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "rank::another_process",
            "--ignored",
            "--nocapture",
        ])
        .env(ROLE, role.join("\n"))
        .stdout(Stdio::piped());
    command
}

#[test]
#[ignore = "started by the other tests, as a process"]
fn another_process() {
    let role = std::env::var(ROLE).unwrap();
    let role: Vec<&str> = role.split('\n').collect();
    match role[..] {
        ["rank", socket, run, rank, world, how, steps] => {
            let place = [rank, world].map(|number| number.parse().unwrap());
            train(socket, run, place, how, steps.parse().unwrap());
        }
        ["keeper", socket] => {
            let options = ServerOptions {
                limits: Limits::total(1 << 30),
                ..ServerOptions::default()
            };
            let stop = Arc::new(AtomicBool::new(false));
            let server = Server::bind(socket, options, stop).unwrap();
            say("listening");
            server.run(|_| {}).unwrap();
        }
        ["stranger", socket] => {
            let mut stream = UnixStream::connect(socket).unwrap();
            let hello = br#"{"ask":"hello","version":1}"#;
            let _ = stream.write_all(&[hello.len().to_le_bytes()[0], 0, 0, 0, 0, 0, 0, 0]);
            let _ = stream.write_all(hello);
            let answered = stream.read(&mut [0; 8]).unwrap_or(0);
            say(&format!("{answered} bytes of an answer"));
        }
        _ => panic!("no such role: {role:?}"),
    }
}

/// Saves steps 1 to `steps`, the last one so that it never comes to an end: it is never captured, or never written.
fn train(socket: &str, run: &str, [rank, size]: [usize; 2], how: &str, steps: u64) {
    let mut options = Options {
        keeper: Some(Arc::new(Client::new(socket))),
        ..Options::default()
    };
    // Ranks of one launch that end it in different ways are still of one launch.
    let session = format!("{run} to {steps}");
    let world = World::new(rank, size, session).unwrap();
    let store = cairn_store::open(run).unwrap();
    let open = |options: &Options| {
        Checkpointer::with_options(store.clone(), world.clone(), options.clone())
    };
    let checkpointer = open(&options);
    let sharded = Sharded::new(size);
    let save = |checkpointer: &Checkpointer, step: u64| {
        let bytes = sharded.bytes(rank, step);
        let mut state = State::new(rank);
        state.tensor(world::NAME, &sharded.spec, &bytes).unwrap();
        state.value("step", step.into());
        let saved = SaveOptions {
            assets: [("note.txt".to_string(), format!("step {step}").into_bytes())].into(),
            ..SaveOptions::default()
        };
        checkpointer.save(step, &state, &saved).unwrap()
    };
    let last = if how == "end" { steps + 1 } else { steps };
    for step in 1..last {
        save(&checkpointer, step).wait().unwrap();
        say(&format!("committed {step}"));
    }
    match how {
        "end" => {}
        "unwritten" => {
            options.pace = Some(Arc::new(Pace::new(1)));
            let slow = open(&options);
            let _saving = save(&slow, steps);
            say("captured");
            wait_for_death();
        }
        "uncaptured" => {
            let len = sharded.bytes(rank, steps).len();
            let promise = Promise::new(len);
            let mut state = State::new(rank);
            state
                .bytes(world::NAME, &sharded.spec, Bytes::Promised(promise))
                .unwrap();
            let _saving = checkpointer.save(steps, &state, &SaveOptions::default());
            say("begun");
            wait_for_death();
        }
        other => panic!("no such way to end: {other}"),
    }
}

fn wait_for_death() -> ! {
    loop {
        std::thread::park();
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}
