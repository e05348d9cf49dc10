//! `cairn completions`: what a shell needs to complete arguments.

use crate::args::{Cli, Completions};
use crate::error::{Error, Exit};
use crate::printer::Printer;
use clap::CommandFactory;

pub(crate) fn run(args: &Completions, printer: &Printer) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cairn", &mut script);
    printer.raw(&script)?;
    Ok(Exit::Done)
}
