//! Builds, tests and measures everything: `cargo xtask <command>`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a developer's tool: it talks to the terminal and keeps no checkpoints"
)]

mod bench;
mod check;
mod conformance;
mod faults;
mod fuzz;
mod gpu;
mod mpi;
mod nightly;
mod package;
mod protocol;
mod steps;
mod test;
mod tools;
mod venv;
mod workspace;

use std::error::Error;
use std::process::ExitCode;

use workspace::Workspace;

/// What every command returns: any error, printed once by `main`.
type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "\
usage: cargo xtask <command>

  check [--install]   format, lints, docs, architecture, dependencies, spelling
  test [NAME]         every Rust and Python test, or those whose name contains NAME
  bench [OPTIONS]     measure, print a table, keep it under benches/runs/ (see `bench --help`)
  conformance [NAME]  the suite of all stores on real servers, installed for it: nightly
  faults [OPTIONS]    simulated worlds in which saves meet faults: --seeds N, --from SEED, --result FILE, --replay SEED
  fuzz [OPTIONS]      every fuzz target, or those named: [NAME] --seconds N (default 30), --runs N, --sanitize
  gpu SUITE [--dev]   a suite packed for a machine with a GPU and without Rust: `captures`
  nightly [OPTIONS]   rounds of real faults: kills, hung ranks, cut connections, full disks, rot (`--rounds N --seed S`)
  protocol [OPTIONS]  every order of the moves of commit and retention, in a model: --bound small|full, --mistake NAME, --result FILE
  venv                the Python environment of the tests, in target/venv, with the package installed
  wheel               the Python package as one file, in target/wheels
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result {
    let workspace = Workspace::locate()?;
    match arguments {
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        [command, "--help" | "-h"] if *command != "bench" => {
            print!("{USAGE}");
            Ok(())
        }
        ["check"] => check::run(&workspace),
        ["check", "--install"] => {
            check::install(&workspace)?;
            check::run(&workspace)
        }
        ["test"] => test::run(&workspace, None),
        ["test", name] => test::run(&workspace, Some(name)),
        ["bench", options @ ..] => bench::run(&workspace, options),
        ["conformance"] => conformance::run(&workspace, None),
        ["conformance", name] => conformance::run(&workspace, Some(name)),
        ["faults", options @ ..] => faults::run(&workspace, options),
        ["fuzz", options @ ..] => fuzz::run(&workspace, options),
        ["gpu", options @ ..] => gpu::run(&workspace, options),
        ["nightly", options @ ..] => nightly::run(&workspace, options),
        ["protocol", options @ ..] => protocol::run(&workspace, options),
        ["venv"] => {
            let python = venv::ensure(&workspace)?;
            package::install(&workspace, &python, package::Profile::Release)?;
            println!("source {}", python.with_file_name("activate").display());
            Ok(())
        }
        ["wheel"] => package::wheel(&workspace),
        _ => Err(format!("unknown command `{}`\n\n{USAGE}", arguments.join(" ")).into()),
    }
}
