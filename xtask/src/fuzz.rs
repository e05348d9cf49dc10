//! Bounded fuzzing of every target in `fuzz/fuzz_targets/`.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::steps::Steps;
use crate::workspace::{Workspace, files, succeeds};

/// How long each target runs unless told otherwise.
pub(crate) const DEFAULT_SECONDS: u32 = 30;

/// A parser that needs more memory than this for a small input has a bug.
const MEMORY_LIMIT_MB: u32 = 2048;

/// A single input may take this long.
const INPUT_TIMEOUT_SECONDS: u32 = 10;

/// Runs each target for `seconds`, from its seeds and what earlier runs found.
pub(crate) fn run(workspace: &Workspace, seconds: u32) -> Result {
    if !workspace.has_subcommand("fuzz") {
        let mut steps = Steps::default();
        let install = ["install", "--locked", "cargo-fuzz"];
        steps.run("install cargo-fuzz", workspace.cargo(&install));
        steps.finish()?;
    }
    let mut steps = Steps::default();
    for target in targets(workspace)? {
        let corpus = workspace.root.join("fuzz/corpus").join(&target);
        fs::create_dir_all(&corpus)?;
        let mut command = cargo_fuzz(workspace);
        command
            .args(["fuzz", "run", &target])
            .arg(corpus)
            .arg(workspace.root.join("fuzz/seeds").join(&target))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-rss_limit_mb={MEMORY_LIMIT_MB}"))
            .arg(format!("-timeout={INPUT_TIMEOUT_SECONDS}"));
        steps.run(&format!("fuzz {target}"), command);
    }
    steps.finish()
}

/// The names of the target files, sorted.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let paths = files(&workspace.root.join("fuzz/fuzz_targets"), "rs")?;
    let stems = paths.iter().filter_map(|path| path.file_stem()?.to_str());
    Ok(stems.map(str::to_owned).collect())
}

/// Cargo with the unstable flags that sanitizers need: nightly where there is one, else stable told to accept them.
fn cargo_fuzz(workspace: &Workspace) -> Command {
    let mut nightly = workspace.command("rustup");
    nightly.args(["run", "nightly", "cargo"]);
    let mut probe = workspace.command("rustup");
    probe.args(["run", "nightly", "cargo", "--version"]);
    let mut command = if succeeds(probe) {
        nightly
    } else {
        let mut stable = workspace.cargo(&[]);
        stable.env("RUSTC_BOOTSTRAP", "1");
        stable
    };
    // Instrumented builds stand apart, or they would displace the ordinary ones.
    command.env("CARGO_TARGET_DIR", workspace.target.join("fuzz"));
    command
}
