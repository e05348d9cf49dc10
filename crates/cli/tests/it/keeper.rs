//! A keeper as a service: it says that it is ready, tells what it holds, and stops when asked.

use crate::fixture::{Place, check};
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

#[test]
fn a_keeper_says_that_it_is_ready_and_stops_when_asked() {
    let place = Place::empty();
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    let mut keeper = Command::new(env!("CARGO_BIN_EXE_cairn"))
        .args([
            "keeper",
            "--socket",
            "own/keeper.sock",
            "--max-bytes",
            "1G",
            "--json",
        ])
        .current_dir(place.path(""))
        .env("NOTIFY_SOCKET", place.path("notify"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut heard = [0; 32];
    let count = manager.recv(&mut heard).unwrap();
    assert_eq!(&heard[..count], b"READY=1");

    let status = place.output(&["keeper", "status", "--socket", "own/keeper.sock", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["process"], keeper.id());
    assert_eq!(
        (&status["used_bytes"], &status["max_bytes"]),
        (&0.into(), &(1_u64 << 30).into())
    );
    assert_eq!(status["snapshots"], Value::Array(Vec::new()));
    let second = place.output(&["keeper", "--socket", "own/keeper.sock"]);
    assert_eq!(second.status.code(), Some(2));

    let process = rustix::process::Pid::from_child(&keeper);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    let count = manager.recv(&mut heard).unwrap();
    assert_eq!(&heard[..count], b"STOPPING=1");
    assert!(keeper.wait().unwrap().success());
    assert!(!place.path("own/keeper.sock").exists());
}

#[test]
fn without_a_keeper_there_is_nothing_to_show() {
    check!(Place::empty().cairn(&["keeper", "status", "--socket", "none/keeper.sock"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: no keeper listens at `none/keeper.sock`

    hint: start one with `cairn keeper`, or name its socket with `--socket` or CAIRN_KEEPER
    ");
}
