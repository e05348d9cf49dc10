//! Ranks as processes: each test starts itself again under `mpirun`, and the ranks check what they see.

#![expect(clippy::unwrap_used, reason = "tests")]

use cairn_collectives::{Communicator, Error, testing};
use cairn_mpi::{Options, World};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

type Group = Arc<dyn Communicator>;

/// Set for processes that are ranks.
const RANK: &str = "CAIRN_MPI_TEST_RANK";

const LONG: Duration = Duration::from_secs(120);

/// In the test's own process, starts `size` ranks and gives their exit code and what they say; in a rank, `None`.
fn ranks(test: &str, size: usize) -> Option<(i32, String)> {
    if std::env::var_os(RANK).is_some() {
        return None;
    }
    let output = Command::new("mpirun")
        .args(["--allow-run-as-root", "--oversubscribe", "-n"])
        .arg(size.to_string())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(RANK, "1")
        .output()
        .unwrap_or_else(|error| panic!("`mpirun` must be there: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Some((output.status.code().unwrap_or(-1), text))
}

/// As [`ranks`], where all ranks must pass; tells whether this is not one of them.
fn pass(test: &str, size: usize) -> bool {
    let ranks = ranks(test, size);
    if let Some((code, text)) = &ranks {
        assert_eq!(*code, 0, "{text}");
        // Ranks interrupt each other, also within a line, but not within what is written at once.
        assert_eq!(text.matches("1 passed; 0 failed").count(), size, "{text}");
    }
    ranks.is_some()
}

#[test]
fn processes_keep_every_promise() {
    if pass("processes_keep_every_promise", 8) {
        return;
    }
    // Messages that are longer than this go in several parts.
    let message_bytes = 5_000;
    let timeout = LONG;
    let world = World::start(Options {
        timeout,
        message_bytes,
        ..Options::default()
    });
    let world = world.unwrap();
    assert!(World::start(Options::default()).is_err());
    testing::conformance(&|size, body| {
        let group = world.group();
        let within = group.rank() < size;
        let part: Group = group.split(u64::from(within), 0).unwrap();
        if within {
            body(&part);
        }
        group.barrier().unwrap();
    });
}

#[test]
fn a_missing_rank_is_named_to_the_others() {
    if pass("a_missing_rank_is_named_to_the_others", 3) {
        return;
    }
    let timeout = Duration::from_secs(2);
    let world = World::start(Options {
        timeout,
        ..Options::default()
    });
    let world = world.unwrap();
    if world.group().rank() == 1 {
        thread::sleep(3 * timeout);
    }
    let error = world.group().barrier().unwrap_err().to_string();
    assert!(error.contains("waited 2.0 s for ranks [1]"), "{error}");
}

#[test]
fn a_rank_that_fails_fails_the_others_at_once() {
    if pass("a_rank_that_fails_fails_the_others_at_once", 3) {
        return;
    }
    let world = World::start(Options::default()).unwrap();
    let start = Instant::now();
    let failed = world.run(|group| match group.rank() {
        2 => Err("the disk is full".to_string()),
        _ => group.barrier().map_err(|error| error.to_string()),
    });
    let expected = match world.group().rank() {
        2 => "the disk is full",
        _ => "the group has ended: rank 2 failed: the disk is full",
    };
    assert_eq!(failed, Err(expected.to_string()));
    assert!(start.elapsed() < LONG);
}

#[test]
fn a_killed_rank_takes_the_others_with_it() {
    let start = Instant::now();
    if let Some((code, text)) = ranks("a_killed_rank_takes_the_others_with_it", 3) {
        assert_ne!(code, 0, "{text}");
        assert!(!text.contains("a rank came back"), "{text}");
        assert!(start.elapsed() < LONG);
        return;
    }
    let world = World::start(Options::default()).unwrap();
    world.group().barrier().unwrap();
    if world.group().rank() == 1 {
        std::process::abort();
    }
    let ended: Result<(), Error> = world.group().barrier();
    panic!("a rank came back: {ended:?}");
}

#[test]
fn a_rank_that_hangs_is_ended_once_the_others_are_done() {
    let start = Instant::now();
    if let Some((code, text)) = ranks("a_rank_that_hangs_is_ended_once_the_others_are_done", 2) {
        assert_ne!(code, 0, "{text}");
        assert!(start.elapsed() < LONG);
        return;
    }
    let patience = Duration::from_millis(500);
    let world = World::start(Options {
        patience,
        ..Options::default()
    });
    let world = world.unwrap();
    if world.group().rank() == 1 {
        thread::sleep(2 * LONG);
    }
}

#[test]
fn a_rank_that_stops_while_it_is_sent_much_is_ended_once_the_others_are_done() {
    let start = Instant::now();
    let test = "a_rank_that_stops_while_it_is_sent_much_is_ended_once_the_others_are_done";
    if let Some((code, text)) = ranks(test, 2) {
        assert_ne!(code, 0, "{text}");
        assert!(text.contains("gave up"), "{text}");
        assert!(start.elapsed() < LONG, "{text}");
        return;
    }
    let seconds = Duration::from_secs(1);
    let world = World::start(Options {
        timeout: seconds,
        patience: seconds,
        ..Options::default()
    });
    let world = world.unwrap();
    world.group().barrier().unwrap();
    if world.group().rank() == 1 {
        // As a node that hangs: it takes nothing in any more, and its connections live.
        let own = std::process::id().to_string();
        let stopped = Command::new("kill").args(["-STOP", &own]).status();
        panic!("it goes on: {stopped:?}");
    }
    thread::sleep(seconds);
    // More than is sent before its receiver asks for it.
    let much = vec![7_u8; 32 << 20];
    let mut out = vec![0; 2 * much.len()];
    let group = world.group();
    let failed = group.all_gather(&much, &[much.len(); 2], &mut out);
    let failed = failed.unwrap_err();
    println!("gave up: {failed}");
}
