//! `cairn plan`: what a save, a load or a move would do, before it does it.

mod load;
mod reshard;
mod save;

pub(crate) use save::file_table;

use crate::args::Plan;
use crate::error::{Error, Exit};
use crate::printer::Printer;

/// The most rows of a table with one row for each rank.
const MAX_RANK_ROWS: usize = 16;

pub(crate) fn run(args: &Plan, printer: &Printer) -> Result<Exit, Error> {
    match args {
        Plan::Save(args) => save::run(args, printer),
        Plan::Load(args) => load::run(args, printer),
        Plan::Reshard(args) => reshard::run(args, printer),
    }
}
