//! Every test: Rust units and integration, documentation examples, orders of threads, processes under MPI, then Python against the built binary and package.

use std::path::Path;

use crate::Result;
use crate::package::Profile;
use crate::steps::Steps;
use crate::workspace::Workspace;
use crate::{mpi, package, venv};

/// The exit code of pytest when no test matches a filter.
const PYTEST_NOTHING_SELECTED: i32 = 5;

/// Tests run beside each other; many of them start several ranks of their own.
const PYTEST_WORKERS: &str = "2";

/// Runs the tests whose name contains `name`, or all of them.
pub(crate) fn run(workspace: &Workspace, name: Option<&str>) -> Result {
    let python = venv::ensure(workspace)?;
    let mut steps = Steps::default();
    rust(workspace, &python, name, &mut steps);
    simulations(workspace, name, &mut steps);
    mpi::test(workspace, name, &mut steps);
    // A filter with `::` is a Rust path: no Python test is called that.
    if !name.is_some_and(|name| name.contains("::")) {
        python_tests(workspace, &python, name, &mut steps);
    }
    steps.finish()
}

/// `cargo nextest` and the documentation examples, or plain `cargo test`, which runs both.
fn rust(workspace: &Workspace, python: &Path, name: Option<&str>, steps: &mut Steps) {
    let everything = ["--workspace", "--features", "testing", "--no-fail-fast"];
    let mut run = |arguments: &[&str]| {
        let mut command = workspace.cargo(arguments);
        command
            .args(everything)
            .args(name)
            .env("CAIRN_PYTHON", python);
        steps.run(&format!("cargo {}", arguments.join(" ")), command);
    };
    if workspace.has_subcommand("nextest") {
        run(&["nextest", "run", "--no-tests=pass"]);
        run(&["test", "--doc"]);
    } else {
        run(&["test"]);
    }
}

/// The threads of saves in many orders, and among many faults. In this build all threads are the scheduler's, so no other test can use it.
fn simulations(workspace: &Workspace, name: Option<&str>, steps: &mut Steps) {
    let features = "cairn-checkpoint/shuttle,cairn-checkpoint/testing,cairn-faults/simulate";
    let mut command = workspace.cargo(&["test", "--features", features]);
    command
        .args(["--package", "cairn-checkpoint", "--test", "interleavings"])
        .args(["--package", "cairn-faults", "--test", "faults"])
        .args(name);
    steps.run("interleavings and faults", command);
}

/// The Python tests, driving the `cairn` binary built like the Rust tests, and the package, installed as users would.
fn python_tests(workspace: &Workspace, python: &Path, name: Option<&str>, steps: &mut Steps) {
    // With the features of the Rust tests, for whom it is built already.
    let build = ["build", "--bin", "cairn"];
    let mut build = workspace.cargo(&build);
    build.args(["--workspace", "--features", "testing"]);
    let built = steps.run("cargo build cairn", build);
    let installed = steps.attempt("wheel", || {
        package::install(workspace, python, Profile::Dev)
    });
    if !built || !installed {
        return;
    }
    if name.is_none() {
        package::check_types(workspace, python, steps);
    }
    pytest(workspace, python, name, steps);
}

/// One call of pytest, so that everything ends in one summary.
fn pytest(workspace: &Workspace, python: &Path, name: Option<&str>, steps: &mut Steps) {
    let mut command = package::module(workspace, python, "pytest");
    command
        .args(["--config-file", "bindings/python/pyproject.toml"])
        .args(["--numprocesses", PYTEST_WORKERS, "--dist", "worksteal"])
        .args(["python/tests", "bindings/python/tests"])
        .env("CAIRN_BIN", workspace.target.join("debug/cairn"));
    let accepted: &[i32] = match name {
        Some(name) => {
            command.args(["-k", name]);
            &[0, PYTEST_NOTHING_SELECTED]
        }
        None => &[0],
    };
    steps.run_accepting("pytest", command, accepted);
}
