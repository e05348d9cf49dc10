//! One file for each verb.

mod cat;
mod compact;
mod completions;
mod convert;
mod demo;
mod diff;
mod doctor;
mod edit;
mod ema;
mod file;
mod generate;
mod inspect;
mod keeper;
mod keygen;
mod layout;
mod log;
mod ls;
mod merge;
mod output;
mod plan;
mod prune;
mod recipe;
mod repair;
mod report;
mod reshard;
mod scrub;
mod sign;
mod sim;
mod stats;
mod tag;
mod tokenize;
mod train;
mod transform;
mod verify;
mod weights;

use crate::args::Command;
use crate::error::{Error, Exit};
use crate::keys;
use crate::printer::Printer;

/// Runs a verb.
pub(crate) fn run(command: &Command, printer: &Printer) -> Result<Exit, Error> {
    if let Command::Merge(_) | Command::Train(_) | Command::Generate(_) = command
        && keys::required()?.is_some()
    {
        return Err(Error::KeyNotUsed);
    }
    match command {
        Command::Inspect(args) => inspect::run(args, printer),
        Command::Ls(args) => ls::run(args, printer),
        Command::Log(args) => log::run(args, printer),
        Command::Verify(args) => verify::run(args, printer),
        Command::Diff(args) => diff::run(args, printer),
        Command::Doctor(args) => doctor::run(args, printer),
        Command::Stats(args) => stats::run(args, printer),
        Command::Reshard(args) => reshard::run(args, printer),
        Command::Convert(args) => convert::run(args, printer),
        Command::Edit(args) => edit::run(args, printer),
        Command::Ema(args) => ema::run(args, printer),
        Command::Merge(args) => merge::run(args, printer),
        Command::Tokenize(args) => tokenize::run(args, printer),
        Command::Plan(args) => plan::run(args, printer),
        Command::Sim(args) => sim::run(args, printer),
        Command::Recipe(args) => recipe::run(args, printer),
        Command::Cat(args) => cat::run(args, printer),
        Command::Report(args) => report::run(args, printer),
        Command::Prune(args) => prune::run(args, printer),
        Command::Tag(args) => tag::run(args, printer),
        Command::Keygen(args) => keygen::run(args, printer),
        Command::Sign(args) => sign::run(args, printer),
        Command::Scrub(args) => scrub::run(args, printer),
        Command::Repair(args) => repair::run(args, printer),
        Command::Compact(args) => compact::run(args, printer),
        Command::Train(args) => train::run(args, printer),
        Command::Keeper(args) => keeper::run(args, printer),
        Command::Generate(args) => generate::run(args, printer),
        Command::Demo(args) => demo::run(args, printer),
        Command::Completions(args) => completions::run(args, printer),
    }
}
