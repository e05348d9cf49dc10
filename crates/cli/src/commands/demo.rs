//! `cairn demo`: what Cairn does, on this machine.

use crate::args::Demo;
use crate::error::{Error, Exit};
use crate::printer::Printer;

pub(crate) fn run(args: &Demo, _printer: &Printer) -> Result<Exit, Error> {
    tracing::debug!(dir = args.dir, gb = args.gb, keep = args.keep, "demo");
    Err(Error::NotBuilt)
}
