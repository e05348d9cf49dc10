//! `mpirun cairn train`: each rank a process.

#[cfg(feature = "mpi")]
mod killed;

use crate::fixture::Place;
use std::process::{Command, Output};

/// What a build without MPI would train several times, if it were started several times, is not trained at all.
#[cfg(not(feature = "mpi"))]
#[test]
fn one_of_many_processes_is_refused_without_mpi() {
    let place = Place::with_config();
    let output = Command::new(env!("CARGO_BIN_EXE_cairn"))
        .args(["train", "run.toml"])
        .env("OMPI_COMM_WORLD_SIZE", "4")
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let Output { status, stderr, .. } = output;
    assert_eq!(status.code(), Some(2));
    let text = String::from_utf8(stderr).unwrap();
    assert!(text.contains("MPI started 4 processes"), "{text}");
    assert!(!place.path("run").exists());
}

/// Four processes that train together.
#[cfg(feature = "mpi")]
fn mpirun(place: &Place, args: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command
        .args(["--allow-run-as-root", "--oversubscribe", "-n", "4"])
        .arg(env!("CARGO_BIN_EXE_cairn"))
        .args(["train", "run.toml", "--json"])
        .args(args)
        .current_dir(place.path(""));
    command
}

#[cfg(feature = "mpi")]
#[test]
fn processes_train_to_the_same_bits_as_threads_and_go_on_from_them() {
    let place = Place::with_config();
    let mpirun = |args: &[&str]| -> Output { mpirun(&place, args).output().unwrap() };
    let four = ["--mesh", "dp=2,pp=2"];
    let threads = ["--set", "checkpoints.folder=threads"];
    place.json(&[&["train", "run.toml"], &four[..], &threads].concat());
    let output = mpirun(&four);
    assert!(output.status.success(), "{output:?}");
    // One of the four tells how it went.
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["step"], 10);
    assert_eq!(place.losses("run"), place.losses("threads"));
    let same = place.output(&["diff", "run", "threads"]);
    assert!(same.status.success(), "{same:?}");

    let output = mpirun(&["--mesh", "dp=2,tp=2", "--set", "steps=12"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["resumed_from"], 10);
    assert_eq!(place.steps("run"), (1..=12).collect::<Vec<_>>());

    // A mesh of another size is refused by all of them.
    let output = mpirun(&["--mesh", "dp=3", "--set", "steps=14"]);
    assert!(!output.status.success(), "{output:?}");
}
