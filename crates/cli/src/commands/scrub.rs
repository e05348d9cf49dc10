//! `cairn scrub`: reads a run again and again, to find damage while it can be mended.

use crate::args::Scrub;
use crate::error::{Error, Exit};
use crate::open::open_run;
use crate::printer::Printer;
use crate::table::{Paint, Style};
use crate::units::{age, plural, size};
use crate::visible;
use cairn::checkpoint::scrub::{Position, Record, ScrubOptions, scrub};
use cairn::store::Store;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    started: String,
    finished: Option<String>,
    position: Option<Position>,
    steps: u64,
    files: u64,
    checked_bytes: u64,
    damage: BTreeMap<u64, Vec<String>>,
}

pub(crate) fn run(args: &Scrub, printer: &Printer) -> Result<Exit, Error> {
    let (run, None) = open_run(&args.run)? else {
        return Err(Error::NotARun {
            path: args.run.clone(),
        });
    };
    let begun = Instant::now();
    let is_over = || args.limit.is_some_and(|limit| begun.elapsed() >= limit);
    let mut options = ScrubOptions {
        bytes_per_second: args.rate,
        restart: args.restart,
    };
    let mut exit = Exit::Done;
    loop {
        let report = pass(&run, &options, &is_over, printer)?;
        printer.report(&report, || report.text(printer.paint()))?;
        if !report.damage.is_empty() {
            exit = Exit::Damaged;
        }
        if args.once || is_over() {
            return Ok(exit);
        }
        options.restart = false;
        let left = args
            .limit
            .map_or(Duration::MAX, |limit| limit.saturating_sub(begun.elapsed()));
        if args.pause < left {
            let pause = age(args.pause);
            printer.note(&format!(
                "the next pass begins in {pause}; `--once` ends after one"
            ));
        }
        thread::sleep(args.pause.min(left));
        if is_over() {
            return Ok(exit);
        }
    }
}

fn pass(
    run: &Arc<dyn Store>,
    options: &ScrubOptions,
    is_over: &dyn Fn() -> bool,
    printer: &Printer,
) -> Result<Report, Error> {
    let done = Arc::new(AtomicU64::new(0));
    let total = run.list("")?.iter().map(|meta| meta.len).sum();
    let bar = printer.progress("scrub", total, done.clone());
    let record = scrub(run, options, is_over, &|bytes| {
        done.fetch_add(bytes, Ordering::Relaxed);
    })?;
    drop(bar);
    Ok(Report::new(run.url(), record))
}

impl Report {
    fn new(run: String, record: Record) -> Self {
        Self {
            run,
            started: record.started,
            finished: record.finished,
            position: record.position,
            steps: record.steps,
            files: record.files,
            checked_bytes: record.checked_bytes,
            damage: record.damage,
        }
    }

    fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        for (step, findings) in &self.damage {
            text += &paint.text(Style::Red, &format!("step {step} is damaged\n"));
            for finding in findings {
                text += &format!("  {}\n", visible::line(&finding.to_string()));
            }
        }
        let steps = usize::try_from(self.steps).unwrap_or(usize::MAX);
        let files = usize::try_from(self.files).unwrap_or(usize::MAX);
        let read = format!(
            "{}, {}, {} read and compared",
            plural(steps, "step"),
            plural(files, "file"),
            size(self.checked_bytes)
        );
        let where_it_is = match &self.position {
            None => String::new(),
            Some(at) => format!(
                "; goes on at byte {} of writer {} in step {}",
                at.offset, at.writer, at.step
            ),
        };
        let damaged = match self.damage.len() {
            0 => "no damage".to_string(),
            count => format!("{} damaged", plural(count, "step")),
        };
        text + &format!("{read}, {damaged}{where_it_is}\n")
    }
}
