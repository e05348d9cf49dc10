//! `cairn doctor`: what a store can do, and what Cairn will therefore do.

use crate::args::Doctor;
use crate::error::{Error, Exit};
use crate::printer::Printer;
use crate::table::{Paint, Style, Table, cell};
use crate::units::{plural, size};
use cairn::checkpoint::{Error as CheckpointError, split_path};
use cairn::store::{self, Health};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Report {
    url: String,
    good: bool,
    findings: Vec<Finding>,
    latency_ms: f64,
    write_bytes_per_second: u64,
    read_bytes_per_second: u64,
    clock_ahead_s: f64,
    unfinished_uploads: usize,
}

#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    works: bool,
    consequence: &'static str,
}

pub(crate) fn run(args: &Doctor, printer: &Printer) -> Result<Exit, Error> {
    refuse_missing(&args.url)?;
    let store = store::open(&args.url)?;
    let report = Report::new(store::examine(store.as_ref())?);
    printer.report(&report, || report.text(printer.paint()))?;
    Ok(match report.good {
        true => Exit::Done,
        false => Exit::Differs,
    })
}

/// A folder that does not exist would be made by the examination, and stay.
fn refuse_missing(url: &str) -> Result<(), Error> {
    if url.contains("://") && !url.starts_with("file:") {
        return Ok(());
    }
    let (above, name) = split_path(url);
    let folders = store::open(&above)?.list_folders("")?;
    match name.is_empty() || folders.contains(&name) {
        true => Ok(()),
        false => Err(CheckpointError::NoSuchPath { path: url.into() }.into()),
    }
}

impl Report {
    fn new(health: Health) -> Self {
        let findings = health.findings.iter().map(|finding| Finding {
            name: finding.name,
            works: finding.works,
            consequence: finding.consequence,
        });
        Self {
            good: health.is_good(),
            findings: findings.collect(),
            latency_ms: health.latency.as_secs_f64() * 1e3,
            write_bytes_per_second: health.write_bytes_per_second,
            read_bytes_per_second: health.read_bytes_per_second,
            clock_ahead_s: health.clock_ahead_s,
            unfinished_uploads: health.unfinished_uploads,
            url: health.url,
        }
    }

    fn text(&self, paint: Paint) -> String {
        let mut table = Table::facts();
        table.fact("store", self.url.as_str());
        table.fact("latency", format!("{:.1} ms", self.latency_ms));
        table.fact("write", format!("{}/s", size(self.write_bytes_per_second)));
        table.fact("read", format!("{}/s", size(self.read_bytes_per_second)));
        if self.unfinished_uploads > 0 {
            let uploads = plural(self.unfinished_uploads, "unfinished upload");
            let uploads = format!("{uploads}; `cairn prune RUN --incomplete` removes old ones");
            table.fact("leftovers", cell(Style::Yellow, uploads));
        }
        let mut findings = Table::new(&["", "", ""]);
        for finding in &self.findings {
            let works = match finding.works {
                true => cell(Style::Green, "yes"),
                false => cell(Style::Red, "no"),
            };
            findings.row(vec![works, finding.name.into(), finding.consequence.into()]);
        }
        format!("{}\n{}", table.render(paint), findings.render(paint))
    }
}
