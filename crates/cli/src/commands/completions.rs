//! `cairn completions`: what a shell needs to complete arguments.

use crate::args::{Cli, Completions};
use crate::error::{Error, Exit};
use crate::printer::Printer;
use clap::CommandFactory;
use serde_json::json;

pub(crate) fn run(args: &Completions, printer: &Printer) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cairn", &mut script);
    let script = String::from_utf8_lossy(&script);
    let shell = args.shell.to_string();
    printer.report(&json!({"shell": shell, "script": script}), || {
        script.to_string()
    })?;
    Ok(Exit::Done)
}
