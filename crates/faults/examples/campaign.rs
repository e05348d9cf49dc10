//! Runs the simulation for many seeds, or for one of them with all that happens.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use cairn_faults::{Case, Defect, Outcome, Summary, minimise, run_case, run_seeds};
use serde_json::{Value, json};
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: campaign [--seeds N] [--from SEED] [--threads T] [--result FILE] [--defect NAME]
       campaign --replay SEED [--defect NAME]
";

/// How many broken seeds are told in full.
const MAX_TOLD: usize = 3;
/// How often progress is told.
const PROGRESS_LINES: u64 = 50;

struct Arguments {
    seeds: u64,
    from: u64,
    threads: usize,
    result: Option<String>,
    replay: Option<u64>,
    defect: Option<Defect>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(arguments) = parse(&words) else {
        print!("{USAGE}");
        return ExitCode::from(2);
    };
    let passed = match arguments.replay {
        Some(seed) => replay(seed, arguments.defect),
        None => campaign(&arguments),
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn parse(words: &[String]) -> Option<Arguments> {
    let mut arguments = Arguments {
        seeds: 2000,
        from: 0,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        result: None,
        replay: None,
        defect: None,
    };
    let mut pairs = words.chunks_exact(2);
    for pair in &mut pairs {
        let value = &pair[1];
        match pair[0].as_str() {
            "--seeds" => arguments.seeds = value.parse().ok()?,
            "--from" => arguments.from = value.parse().ok()?,
            "--threads" => arguments.threads = value.parse().ok()?,
            "--result" => arguments.result = Some(value.clone()),
            "--replay" => arguments.replay = Some(value.parse().ok()?),
            "--defect" => {
                let named = |defect: &Defect| format!("{defect:?}") == *value;
                arguments.defect = Some(Defect::ALL.into_iter().find(named)?);
            }
            _ => return None,
        }
    }
    pairs.remainder().is_empty().then_some(arguments)
}

fn campaign(arguments: &Arguments) -> bool {
    let begun = Instant::now();
    let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
    let often = (arguments.seeds / PROGRESS_LINES).max(1);
    let tell = |done: u64, outcome: &Outcome| {
        if let Some(violation) = outcome.violations.first() {
            say(&format!(
                "seed {} is broken: {violation}",
                outcome.case.seed
            ));
        }
        if done.is_multiple_of(often) {
            say(&format!("{done} seeds, {} s", begun.elapsed().as_secs()));
        }
    };
    let summary = run_seeds(seeds.clone(), arguments.threads, arguments.defect, &tell);
    let result = result(
        &summary,
        &seeds,
        arguments.threads,
        begun.elapsed().as_secs_f64(),
    );
    println!("{result:#}");
    for outcome in summary.broken.iter().take(MAX_TOLD) {
        tell_in_full(outcome, arguments.defect);
    }
    let is_kept = arguments.result.as_ref().is_none_or(|file| {
        let kept = keep(file, &result);
        kept.inspect_err(|error| say(&format!("cannot write `{file}`: {error}")))
            .is_ok()
    });
    summary.broken.is_empty() && is_kept
}

/// What came of it, small enough to keep.
fn result(summary: &Summary, seeds: &Range<u64>, threads: usize, seconds: f64) -> Value {
    let checks = summary.checks.iter();
    let checks: serde_json::Map<String, Value> = checks
        .map(|(rule, times)| (rule.to_string(), json!(times)))
        .collect();
    let broken = summary.broken.iter();
    let broken: Vec<Value> = broken
        .map(|outcome| json!({"seed": outcome.case.seed, "violations": outcome.violations}))
        .collect();
    json!({
        "seeds": {"from": seeds.start, "count": summary.cases},
        "faults": summary.faults,
        "checks": checks,
        "promises": summary.promises,
        "failures_told": summary.failures,
        "broken": broken,
        "hash": format!("{:016x}", summary.hash),
        "threads": threads,
        "seconds": (seconds * 10.0).round() / 10.0,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a report, not the state of a run"
)]
fn keep(file: &str, result: &Value) -> std::io::Result<()> {
    std::fs::write(file, format!("{result:#}\n"))
}

/// A line that is seen at once, also through a pipe.
fn say(line: &str) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

fn tell_in_full(outcome: &Outcome, defect: Option<Defect>) {
    println!("\nbroken: {}", outcome.case);
    print_violations(outcome);
    let least = minimise(outcome, defect);
    println!("\nthe least of it: {}", least.case);
    print_violations(&least);
    least.trace.iter().for_each(|line| println!("{line}"));
}

fn replay(seed: u64, defect: Option<Defect>) -> bool {
    let outcome = run_case(&Case::draw(seed), defect);
    println!("{}", outcome.case);
    outcome.trace.iter().for_each(|line| println!("{line}"));
    print_violations(&outcome);
    println!("hash {:016x}", outcome.hash);
    outcome.violations.is_empty()
}

fn print_violations(outcome: &Outcome) {
    for violation in &outcome.violations {
        println!("  ✗ {violation}");
    }
}
