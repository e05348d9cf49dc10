//! `cairn tag`: words that keep a step for good.

use crate::args::Tag;
use crate::error::{Error, Exit};
use crate::open::open_run;
use crate::printer::Printer;
use crate::visible;
use cairn::checkpoint::{Checkpointer, World};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    step: u64,
    tags: Vec<String>,
}

pub(crate) fn run(args: &Tag, printer: &Printer) -> Result<Exit, Error> {
    let (run, step) = open_run(&args.step)?;
    let steps = Checkpointer::new(run.clone(), World::single());
    let step = match step {
        Some(step) => step,
        None => steps.latest()?.checkpoint.step(),
    };
    match &args.name {
        Some(name) if args.remove => steps.untag(step, name)?,
        Some(name) => steps.tag(step, name)?,
        None => {}
    }
    let report = Report {
        run: run.url(),
        step,
        tags: steps.tags(step)?,
    };
    printer.report(&report, || report.text())?;
    Ok(Exit::Done)
}

impl Report {
    fn text(&self) -> String {
        match self.tags.is_empty() {
            true => format!("step {} has no tags\n", self.step),
            false => format!(
                "step {}: {}\n",
                self.step,
                visible::line(&self.tags.join(", "))
            ),
        }
    }
}
