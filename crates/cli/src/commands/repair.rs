//! `cairn repair`: mends a step from a copy of it.

use crate::args::Repair;
use crate::error::{Error, Exit};
use crate::open::open_run;
use crate::printer::Printer;
use crate::table::{Paint, Style, Table, cell};
use crate::units::{plural, size};
use cairn::checkpoint::repair::{FileState, RepairReport, RepairedFile, repair};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    step: u64,
    from: String,
    dry_run: bool,
    whole: bool,
    files: Vec<RepairedFile>,
}

pub(crate) fn run(args: &Repair, printer: &Printer) -> Result<Exit, Error> {
    let (run, Some(step)) = open_run(&args.step)? else {
        return Err(Error::NotAStep {
            path: args.step.clone(),
        });
    };
    let (copy, named) = open_run(&args.from)?;
    if named.is_some_and(|named| named != step) {
        return Err(Error::OtherStep {
            path: args.from.clone(),
            step,
        });
    }
    let done = Arc::new(AtomicU64::new(0));
    let total = run.list(&cairn::checkpoint::step_folder(step))?;
    let total = total.iter().map(|meta| meta.len).sum();
    let bar = printer.progress("repair", total, done.clone());
    let found = repair(&run, step, &copy, args.dry_run, &|bytes| {
        done.fetch_add(bytes, Ordering::Relaxed);
    })?;
    drop(bar);
    let exit = match found.is_whole() {
        true => Exit::Done,
        false => Exit::Damaged,
    };
    let report = Report::new(args, run.url(), step, copy.url(), found);
    printer.report(&report, || report.text(printer.paint()))?;
    Ok(exit)
}

impl Report {
    fn new(args: &Repair, run: String, step: u64, from: String, found: RepairReport) -> Self {
        Self {
            run,
            step,
            from,
            dry_run: args.dry_run,
            whole: found.is_whole(),
            files: found.files,
        }
    }

    fn count(&self, state: FileState) -> usize {
        let files = self.files.iter();
        files.filter(|file| file.state == state).count()
    }

    fn text(&self, paint: Paint) -> String {
        let mut table = Table::new(&["", "", ""]);
        for file in self
            .files
            .iter()
            .filter(|file| file.state != FileState::Whole)
        {
            let (style, word) = match (file.state, self.dry_run) {
                (FileState::Lost, _) => (Style::Red, "lost"),
                (_, true) => (Style::Yellow, "would repair"),
                (_, false) => (Style::Green, "repaired"),
            };
            let problem = file.problem.clone().unwrap_or_default();
            table.row(vec![
                cell(style, word),
                file.file.as_str().into(),
                problem.into(),
            ]);
        }
        let mended = self.count(FileState::Repaired);
        let bytes: u64 = self.files.iter().map(|file| file.replaced_bytes).sum();
        let verb = if self.dry_run {
            "to repair"
        } else {
            "repaired"
        };
        let mut end = match mended {
            0 => format!("nothing {verb}"),
            _ => format!(
                "{} {verb}, {} from the copy",
                plural(mended, "file"),
                size(bytes)
            ),
        };
        end += &format!(
            ", {} whole before",
            plural(self.count(FileState::Whole), "file")
        );
        if !self.whole {
            end += &format!(", {} lost", plural(self.count(FileState::Lost), "file"));
        }
        format!("{}{end}\n", table.render(paint))
    }
}
