//! The `cairn` command: arguments in, text or JSON out, and an exit code.
//!
//! Each file of `commands/` is one verb: it calls into the `cairn` library and says what came back. What is printed, where,
//! and in which colour is decided in `printer.rs` alone; `docs/cli.md` documents every verb, field and exit code.

mod args;
mod commands;
mod complete;
mod error;
mod events;
mod keys;
mod logging;
mod names;
mod numbers;
mod open;
mod printer;
mod slice;
mod steps;
mod table;
mod units;
mod visible;

use args::Cli;
use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use error::{Error, Exit};
use printer::Printer;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A shell that completes a line asks here, and the answer is all there is to do.
    CompleteEnv::with_factory(Cli::command).complete();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return printer::usage(&usage),
    };
    let printer = Printer::new(&cli.global);
    let trace = logging::start(&cli.global);
    let result = commands::run(&cli.command, &printer);
    let result = result.and_then(|exit| trace.write().map(|()| exit));
    let exit = match result {
        Ok(exit) => exit,
        // Whoever reads our output has seen enough.
        Err(Error::ClosedPipe) => Exit::Done,
        Err(error) => {
            printer.error(&error);
            error.exit()
        }
    };
    ExitCode::from(exit as u8)
}
