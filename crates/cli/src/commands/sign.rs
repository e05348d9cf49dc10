//! `cairn sign`: who made a step, so that nobody else can change it unseen.

use crate::args::Sign;
use crate::error::{Error, Exit};
use crate::keys;
use crate::open::open_run;
use crate::printer::Printer;
use crate::units::{plural, size};
use cairn::checkpoint::signing::sign;
use cairn::checkpoint::{Checkpointer, World};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    step: u64,
    public_key: String,
    files: usize,
    len_bytes: u64,
}

pub(crate) fn run(args: &Sign, printer: &Printer) -> Result<Exit, Error> {
    let key = keys::secret(&args.key)?;
    let (run, step) = open_run(&args.step)?;
    let steps = Checkpointer::new(run.clone(), World::single());
    let checkpoint = match step {
        Some(step) => steps.open(step)?,
        None => steps.latest()?.checkpoint,
    };
    let done = Arc::new(AtomicU64::new(0));
    let bar = printer.progress("sign", checkpoint.manifest().len_bytes, done.clone());
    let signed = sign(&checkpoint, &key, &|bytes| {
        done.fetch_add(bytes, Ordering::Relaxed);
    })?;
    drop(bar);
    let report = Report {
        run: run.url(),
        step: checkpoint.step(),
        public_key: signed.key.to_string(),
        files: signed.files,
        len_bytes: signed.len_bytes,
    };
    printer.report(&report, || {
        let files = plural(report.files, "file");
        let bytes = size(report.len_bytes);
        format!("signed step {}, {files}, {bytes}\n", report.step)
    })?;
    Ok(Exit::Done)
}
