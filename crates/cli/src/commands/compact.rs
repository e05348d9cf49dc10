//! `cairn compact`: a step that refers to files of others, written anew so that it stands alone.

use crate::args::Compact;
use crate::error::{Error, Exit};
use crate::open::{Opened, open};
use crate::printer::Printer;
use crate::units::{plural, size};
use cairn::checkpoint::{DeltaSummary, World, compact};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    step: u64,
    dry_run: bool,
    /// What it has of its own and what it refers to; nothing is written if it stands alone already.
    delta: Option<DeltaSummary>,
    len_bytes: u64,
}

pub(crate) fn run(args: &Compact, printer: &Printer) -> Result<Exit, Error> {
    let Opened::Checkpoint {
        run, checkpoint, ..
    } = open(&args.path, printer)?
    else {
        let path = args.path.clone();
        return Err(Error::NotARun { path });
    };
    let manifest = checkpoint.manifest();
    let report = Report {
        run: run.url(),
        step: manifest.step,
        dry_run: args.dry_run,
        delta: manifest.delta.clone(),
        len_bytes: manifest.len_bytes,
    };
    if report.delta.is_some() && !args.dry_run {
        let written = Arc::new(AtomicU64::new(0));
        let bar = printer.progress("compact", report.len_bytes, written.clone());
        compact(&run, report.step, &World::single(), &written)?;
        drop(bar);
    }
    printer.report(&report, || report.text())?;
    Ok(Exit::Done)
}

impl Report {
    fn text(&self) -> String {
        let (step, all) = (self.step, size(self.len_bytes));
        let Some(delta) = &self.delta else {
            return format!("step {step} refers to no other step\n");
        };
        let files = delta.bases.values().map(|files| files.len()).sum();
        let files = plural(files, "file");
        match self.dry_run {
            true => format!("step {step} refers to {files}; would write {all} in full\n"),
            false => format!("step {step} stands alone: {all} written, {files} no longer needed\n"),
        }
    }
}
