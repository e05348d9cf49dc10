//! `cairn stats`: what the values of tensors are like.

pub(super) mod spark;

use crate::args::{Bars, Stats as Args};
use crate::commands::weights::chosen;
use crate::error::{Error, Exit};
use crate::names::natural;
use crate::numbers::{percent, short_or_blank};
use crate::open::open;
use crate::printer::Printer;
use crate::table::{Cell, Paint, Style, Table, cell};
use crate::units::size;
use cairn::checkpoint::statistics::{ScanOptions, Statistics, summarize};
use cairn::checkpoint::{Kept, Source, name_family};
use cairn::store::redact;
use cairn::tensor::{DType, element_count};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The bars of a histogram.
const BINS: usize = 24;

#[derive(Debug, Serialize)]
struct Report {
    path: String,
    tensors: usize,
    elements: u64,
    patterns: Vec<Pattern>,
}

/// Tensors that differ only in the number of their layer.
#[derive(Debug, Serialize)]
struct Pattern {
    pattern: String,
    count: usize,
    dtype: String,
    elements: u64,
    nan: u64,
    infinite: u64,
    zeros: u64,
    sparsity: Option<f64>,
    mean: Option<f64>,
    std: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    absmax: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    histogram: Option<Bins>,
}

/// How many elements lie in equal stretches from `min` to `max`.
#[derive(Debug, Serialize)]
struct Bins {
    counts: Vec<f64>,
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, Error> {
    let start = Instant::now();
    let source = Kept::new(open(&args.path, printer)?.into_source());
    let aliases = source.aliases();
    let mut names = chosen(&source, &args.keys)?;
    names.retain(|name| !aliases.contains_key(*name));
    names.sort_by_key(|name| natural(name));
    let mut options = ScanOptions {
        histogram: args.hist.is_some(),
        ..ScanOptions::default()
    };
    options.threads = args.threads.unwrap_or(options.threads);
    let read_bytes = options.progress.clone();
    let bar = printer.progress("stats", total(&source, &names), Arc::clone(&read_bytes));
    let mut lines = Lines {
        each: args.each,
        histogram: args.hist.is_some(),
        ..Lines::default()
    };
    summarize(&source, &names, &options, |name, statistics| {
        let dtype = source.find(name).map(|tensor| tensor.dtype);
        lines.add(name, dtype, &statistics);
    })?;
    drop(bar);
    let patterns = lines.finish();
    let report = Report {
        path: redact(&args.path),
        tensors: names.len(),
        elements: patterns.iter().map(|pattern| pattern.elements).sum(),
        patterns,
    };
    printer.report(&report, || report.text(args.hist, printer.paint()))?;
    let (bytes, seconds) = (
        read_bytes.load(Ordering::Relaxed),
        start.elapsed().as_secs_f64(),
    );
    printer.note(&format!("read {} in {seconds:.1} s", size(bytes)));
    Ok(Exit::Done)
}

fn total(source: &dyn Source, names: &[&str]) -> u64 {
    let tensors = names.iter().filter_map(|name| source.find(name));
    let len = |tensor: cairn::checkpoint::StoredTensor| {
        tensor.dtype.len_bytes(element_count(&tensor.shape)?)
    };
    tensors.filter_map(len).map(|len| len as u64).sum()
}

/// The tensors of one line.
#[derive(Debug, Default)]
struct Family {
    count: usize,
    dtypes: Vec<DType>,
    statistics: Statistics,
}

/// What is printed, in the order the first tensors of each line came.
#[derive(Debug, Default)]
struct Lines {
    each: bool,
    histogram: bool,
    /// Lines that are done.
    done: Vec<Pattern>,
    places: HashMap<String, usize>,
    families: Vec<(String, Family)>,
}

impl Lines {
    fn add(&mut self, name: &str, dtype: Option<DType>, statistics: &Statistics) {
        // A histogram is large: that of a tensor which stands alone is not kept.
        if self.each {
            let mut family = Family::default();
            family.add(dtype, statistics);
            let line = Pattern::new(name.to_string(), &family, self.histogram);
            return self.done.push(line);
        }
        let place = *self
            .places
            .entry(name_family(name))
            .or_insert_with_key(|family| {
                self.families.push((family.clone(), Family::default()));
                self.families.len() - 1
            });
        self.families[place].1.add(dtype, statistics);
    }

    fn finish(mut self) -> Vec<Pattern> {
        let families = self.families.into_iter();
        let lines = families.map(|(name, family)| Pattern::new(name, &family, self.histogram));
        self.done.extend(lines);
        self.done
    }
}

impl Family {
    fn add(&mut self, dtype: Option<DType>, statistics: &Statistics) {
        self.count += 1;
        self.statistics.append(statistics);
        self.dtypes
            .extend(dtype.filter(|dtype| !self.dtypes.contains(dtype)));
    }
}

impl Pattern {
    fn new(pattern: String, family: &Family, with_histogram: bool) -> Self {
        let summary = &family.statistics.summary;
        let range = summary.min().zip(summary.max()).filter(|_| with_histogram);
        let histogram = range.map(|(low, high)| Bins {
            counts: family.statistics.histogram.bins(low, high, BINS),
        });
        let dtypes: Vec<&str> = family.dtypes.iter().map(|dtype| dtype.name()).collect();
        Self {
            pattern,
            count: family.count,
            dtype: dtypes.join(", "),
            elements: summary.elements,
            nan: summary.nan,
            infinite: summary.infinite,
            zeros: summary.zeros,
            sparsity: summary.sparsity(),
            mean: summary.mean(),
            std: summary.std(),
            min: summary.min(),
            max: summary.max(),
            absmax: summary.absmax(),
            histogram,
        }
    }
}

impl Report {
    fn text(&self, bars: Option<Bars>, paint: Paint) -> String {
        let mut header = vec![
            "PATTERN", " COUNT", "DTYPE", " MEAN", " STD", " MIN", " MAX", " ZEROS", " NAN", " INF",
        ];
        header.extend(bars.map(|_| "HISTOGRAM"));
        let mut table = Table::new(&header);
        for pattern in &self.patterns {
            let alarm = |count: u64| match count {
                0 => cell(Style::Dim, "0"),
                count => cell(Style::Red, count.to_string()),
            };
            let mut row: Vec<Cell> = vec![
                pattern.pattern.as_str().into(),
                pattern.count.to_string().into(),
                pattern.dtype.as_str().into(),
                short_or_blank(pattern.mean).into(),
                short_or_blank(pattern.std).into(),
                short_or_blank(pattern.min).into(),
                short_or_blank(pattern.max).into(),
                pattern.sparsity.map(percent).unwrap_or_default().into(),
                alarm(pattern.nan),
                alarm(pattern.infinite),
            ];
            if let (Some(bars), Some(histogram)) = (bars, &pattern.histogram) {
                row.push(spark::line(&histogram.counts, bars).into());
            }
            table.row(row);
        }
        table.render(paint)
    }
}
