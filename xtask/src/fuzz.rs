//! Bounded fuzzing of every target in `fuzz/fuzz_targets/`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::steps::Steps;
use crate::workspace::{Workspace, files, succeeds};

/// A parser that needs more memory than this for a small input has a bug.
const MEMORY_LIMIT_MB: u32 = 2048;

/// A single input may take this long.
const INPUT_TIMEOUT_SECONDS: u32 = 10;

/// How a target says how many inputs it tried.
const EXECUTIONS: &str = "stat::number_of_executed_units:";

/// How many of a failed target's last lines are shown.
const LINES: usize = 80;

/// How long, how often, and which.
struct Options<'a> {
    /// How long each target runs, in seconds.
    seconds: u32,
    /// How many inputs each tries at most.
    runs: Option<u64>,
    /// Only targets whose name contains this.
    name: &'a str,
    /// Whether memory is watched byte by byte: no code of ours that is fuzzed is unsafe, so that it finds faults of dependencies alone, at
    /// a third of the speed.
    sanitize: bool,
}

impl<'a> Options<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Self> {
        let mut options = Self {
            seconds: 30,
            runs: None,
            name: "",
            sanitize: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().copied().ok_or("a value is missing");
            match *argument {
                "--seconds" => options.seconds = value()?.parse()?,
                "--runs" => options.runs = Some(value()?.parse()?),
                "--sanitize" => options.sanitize = true,
                name if !name.starts_with('-') => options.name = name,
                other => return Err(format!("`fuzz` has no option `{other}`").into()),
            }
        }
        Ok(options)
    }
}

/// What a target did.
struct Outcome {
    target: String,
    executions: u64,
    seconds: f64,
    passed: bool,
}

/// Runs each target from its seeds and what earlier runs found, and says how many inputs each has tried.
pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> Result {
    let options = Options::parse(arguments)?;
    if !workspace.has_subcommand("fuzz") {
        let mut steps = Steps::default();
        let install = ["install", "--locked", "cargo-fuzz"];
        steps.run("install cargo-fuzz", workspace.cargo(&install));
        steps.finish()?;
    }
    let mut steps = Steps::default();
    let build = cargo_fuzz(workspace, "build", &options);
    steps.run("build", build);
    steps.finish()?;

    let mut outcomes = Vec::new();
    for target in targets(workspace)? {
        if target.contains(options.name) {
            outcomes.push(fuzz(workspace, &target, &options)?);
        }
    }
    report(&outcomes)
}

fn fuzz(workspace: &Workspace, target: &str, options: &Options<'_>) -> Result<Outcome> {
    eprintln!("── fuzz {target}");
    let corpus = workspace.root.join("fuzz/corpus").join(target);
    fs::create_dir_all(&corpus)?;
    let mut command = cargo_fuzz(workspace, "run", options);
    command
        .arg(target)
        .arg(corpus)
        .arg(workspace.root.join("fuzz/seeds").join(target))
        .args(["--", "-print_final_stats=1"])
        .arg(format!("-max_total_time={}", options.seconds))
        .arg(format!("-rss_limit_mb={MEMORY_LIMIT_MB}"))
        .arg(format!("-timeout={INPUT_TIMEOUT_SECONDS}"))
        .args(options.runs.map(|runs| format!("-runs={runs}")));
    let start = Instant::now();
    let mut process = command.stderr(Stdio::piped()).spawn()?;
    let told = process.stderr.take().ok_or("no standard error")?;
    let mut executions = 0;
    // Progress and statistics are for the table; what a target says of what it found comes last.
    let mut lines = Vec::new();
    for line in BufReader::new(told).lines() {
        let line = line?;
        match line.strip_prefix(EXECUTIONS) {
            Some(number) => executions = number.trim().parse()?,
            None if line.starts_with('#') || line.starts_with("stat::") => {}
            None => lines.push(line),
        }
    }
    let passed = process.wait()?.success();
    if !passed {
        let last = lines.len().saturating_sub(LINES);
        eprintln!("{}", lines[last..].join("\n"));
    }
    Ok(Outcome {
        target: target.to_owned(),
        executions,
        seconds: start.elapsed().as_secs_f64(),
        passed,
    })
}

/// Prints the table; an error if a target found something.
fn report(outcomes: &[Outcome]) -> Result {
    println!("| target | executions | per second | |");
    println!("|---|---:|---:|---|");
    for outcome in outcomes {
        let speed = outcome.executions as f64 / outcome.seconds.max(1e-3);
        let found = if outcome.passed { "" } else { "FAILS" };
        let (target, executions) = (&outcome.target, outcome.executions);
        println!("| {target} | {executions} | {speed:.0} | {found} |");
    }
    let total: u64 = outcomes.iter().map(|outcome| outcome.executions).sum();
    println!("| **all** | {total} | | |");
    let failed = outcomes.iter().filter(|outcome| !outcome.passed);
    let failed: Vec<&str> = failed.map(|outcome| outcome.target.as_str()).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("something was found by: {}", failed.join(", ")).into()),
    }
}

/// The names of the target files, sorted.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let paths = files(&workspace.root.join("fuzz/fuzz_targets"), "rs")?;
    let stems = paths.iter().filter_map(|path| path.file_stem()?.to_str());
    Ok(stems.map(str::to_owned).collect())
}

/// `cargo fuzz` with the unstable flags it needs: nightly where there is one, else stable told to accept them.
fn cargo_fuzz(workspace: &Workspace, verb: &str, options: &Options<'_>) -> Command {
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
    let sanitizer = if options.sanitize { "address" } else { "none" };
    command.args(["fuzz", verb, "--sanitizer", sanitizer]);
    command
}
