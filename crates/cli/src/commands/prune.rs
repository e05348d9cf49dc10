//! `cairn prune`: what goes, what stays and why, and then the deletion.

use crate::args::Prune;
use crate::error::{Error, Exit};
use crate::open::open_run;
use crate::printer::Printer;
use crate::table::{Paint, Style, Table, cell};
use crate::units::{plural, size};
use cairn::checkpoint::retention::{Abandoned, Keep, PrunePlan, plan, prune};
use cairn::checkpoint::step_folder;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::SystemTime;

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    dry_run: bool,
    keep: BTreeMap<u64, String>,
    remove: Vec<u64>,
    purge: Vec<u64>,
    spared: Vec<u64>,
    unusable: BTreeMap<u64, String>,
    leftovers: Vec<String>,
    /// The keys of unfinished uploads.
    uploads: Vec<String>,
    /// File → the steps that refer to it.
    held: BTreeMap<String, String>,
    freed_bytes: u64,
    grace_seconds: u64,
}

pub(crate) fn run(args: &Prune, printer: &Printer) -> Result<Exit, Error> {
    let (run, step) = open_run(&args.run)?;
    if step.is_some() {
        return Err(Error::NotARun {
            path: args.run.clone(),
        });
    }
    let found = plan(&run, &rules(args), args.incomplete, SystemTime::now())?;
    let mut report = Report::new(run.url(), args.dry_run, &found);
    if args.dry_run {
        printer.report(&report, || report.text(printer.paint()))?;
        return Ok(Exit::Done);
    }
    if !args.yes && !found.is_empty() {
        ask(&report, printer)?;
    }
    // Also if nothing is planned: what dead writers left half-written is in no plan.
    report.spared = prune(run.as_ref(), &found)?;
    for step in &report.spared {
        printer.warn(&format!(
            "step {step} stays: it was tagged or saved anew meanwhile"
        ));
    }
    printer.report(&report, || report.text(printer.paint()))?;
    Ok(Exit::Done)
}

/// Without a rule that keeps steps, all stay: only leftovers were asked for.
fn rules(args: &Prune) -> Keep {
    let none = args.keep_last.is_none()
        && args.keep_every.is_none()
        && args.keep_best.is_empty()
        && args.keep_within.is_empty();
    let abandoned = if none {
        Abandoned::All
    } else {
        Abandoned::default()
    };
    Keep {
        last: args.keep_last.unwrap_or(if none { usize::MAX } else { 0 }),
        every: args.keep_every,
        best: args.keep_best.clone(),
        within: args.keep_within.clone(),
        abandoned: args.keep_abandoned.unwrap_or(abandoned),
        grace: args.grace,
        read_share: args.read_data.unwrap_or(0.0),
    }
}

fn ask(report: &Report, printer: &Printer) -> Result<(), Error> {
    let refused = |reason| Err(Error::NotConfirmed { reason });
    let question = format!(
        "{}Delete {}?",
        report.list(printer.paint()),
        report.what_goes()
    );
    match printer.confirm(&question)? {
        Some(true) => Ok(()),
        Some(false) => refused("you did not say yes"),
        None => refused("there is nobody to ask"),
    }
}

impl Report {
    fn new(run: String, dry_run: bool, plan: &PrunePlan) -> Self {
        Self {
            run,
            dry_run,
            keep: plan.keep.clone(),
            remove: plan.remove.keys().copied().collect(),
            purge: plan.purge.clone(),
            spared: Vec::new(),
            unusable: plan.unusable.clone(),
            leftovers: plan.leftovers.clone(),
            uploads: plan
                .uploads
                .iter()
                .map(|upload| upload.key.clone())
                .collect(),
            held: plan.held.clone(),
            freed_bytes: plan.len_bytes,
            grace_seconds: plan.grace.as_secs(),
        }
    }

    fn is_empty(&self) -> bool {
        self.remove.is_empty()
            && self.purge.is_empty()
            && self.leftovers.is_empty()
            && self.uploads.is_empty()
    }

    fn what_goes(&self) -> String {
        let counts = [
            (self.remove.len() + self.purge.len(), "step"),
            (self.leftovers.len(), "attempt"),
            (self.uploads.len(), "upload"),
        ];
        let some = counts.into_iter().filter(|(count, _)| *count > 0);
        let some: Vec<String> = some.map(|(count, what)| plural(count, what)).collect();
        let what = match some.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, before)) => format!("{} and {last}", before.join(", ")),
            None => plural(0, "step"),
        };
        format!("{what}, {}", size(self.freed_bytes))
    }

    /// Every step and what becomes of it, newest first.
    fn list(&self, paint: Paint) -> String {
        let remove = self
            .remove
            .iter()
            .map(|step| (*step, Style::Red, "remove", "no rule keeps it".to_string()));
        let purge = self.purge.iter().map(|step| {
            let why = "deleted before, now its files go";
            (*step, Style::Red, "remove", why.to_string())
        });
        let keep = self
            .keep
            .iter()
            .map(|(step, why)| (*step, Style::Green, "keep", why.clone()));
        // Of a step that was never committed, what goes is listed below.
        let goes = |step: u64| {
            let folder = step_folder(step) + "/";
            self.leftovers
                .iter()
                .any(|leftover| leftover.starts_with(&folder))
        };
        let skip = self
            .unusable
            .iter()
            .filter(|(step, _)| !goes(**step))
            .map(|(step, why)| (*step, Style::Yellow, "leave", why.clone()));
        let mut rows: Vec<_> = remove.chain(purge).chain(keep).chain(skip).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.0));
        let mut table = Table::new(&["", " ", ""]);
        for (step, style, verb, why) in rows {
            table.row(vec![cell(style, verb), step.to_string().into(), why.into()]);
        }
        for folder in self.leftovers.iter().chain(&self.uploads) {
            let verb = cell(Style::Red, "remove");
            table.row(vec![verb, "".into(), folder.as_str().into()]);
        }
        for (file, who) in &self.held {
            let what = format!("{file}, which is needed by {who}");
            table.row(vec![cell(Style::Green, "keep"), "".into(), what.into()]);
        }
        table.render(paint)
    }

    fn text(&self, paint: Paint) -> String {
        let end = match (self.is_empty(), self.dry_run) {
            (true, _) => "nothing to delete".to_string(),
            (false, true) => format!("would delete {}", self.what_goes()),
            (false, false) => format!("deleted {}", self.what_goes()),
        };
        let later = match self.grace_seconds > 0 && !self.remove.is_empty() {
            true => "; files of deleted steps stay for the grace period",
            false => "",
        };
        format!("{}\n{end}{later}\n", self.list(paint))
    }
}
