//! `cairn compact`: a step that refers to files of others, or is compressed, written anew as plain files.

use crate::args::Compact;
use crate::error::{Error, Exit};
use crate::open::{Opened, open};
use crate::printer::Printer;
use crate::units::{plural, size};
use cairn::checkpoint::{DeltaSummary, PackedSummary, World, compact};
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
    /// What it was compressed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    packed: Option<PackedSummary>,
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
        packed: manifest.packed,
        len_bytes: manifest.len_bytes,
    };
    if !manifest.is_plain() && !args.dry_run {
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
        let bases = self.delta.iter().flat_map(|delta| delta.bases.values());
        let files = plural(bases.map(|files| files.len()).sum(), "file");
        let (before, after) = match (&self.delta, self.packed) {
            (None, None) => return format!("step {step} refers to no other step\n"),
            (None, Some(packed)) => {
                let stored = size(packed.stored_bytes);
                let after = format!("{stored} compressed before");
                (format!("is compressed to {stored}"), after)
            }
            (Some(_), _) => {
                let after = format!("{files} no longer needed");
                (format!("refers to {files}"), after)
            }
        };
        match self.dry_run {
            true => format!("step {step} {before}; would write {all} in full\n"),
            false => format!("step {step} stands alone: {all} written, {after}\n"),
        }
    }
}
