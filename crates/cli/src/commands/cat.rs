//! `cairn cat`: values of a slice of a tensor.

mod npy;
mod print;
mod read;

use crate::args::Cat;
use crate::error::{Error, Exit};
use crate::open::open;
use crate::printer::Printer;
use crate::slice::{self, Selection};
use crate::table::Style;
use crate::visible;
use cairn::checkpoint::{Pattern, Source, StoredTensor};
use cairn::tensor::element_count;
use print::Shown;
use read::Elements;
use serde::Serialize;
use serde_json::Value;

/// The most bytes read to be printed.
const MAX_READ_BYTES: usize = 1 << 30;
/// The most bytes read to be written to a file, all of which are in memory.
const MAX_NPY_BYTES: usize = 64 << 30;
/// The most values printed, abbreviated or not.
const MAX_PRINTED_VALUES: usize = 1 << 24;
/// More values than this are abbreviated.
const MAX_VALUES: usize = 1000;

#[derive(Debug, Serialize)]
struct Report {
    name: String,
    dtype: String,
    /// Of what was picked.
    shape: Vec<usize>,
    stored_shape: Vec<usize>,
    /// What was read to have it.
    read_bytes: u64,
    /// The file they were written to, in place of being printed.
    npy: Option<String>,
    values: Value,
}

pub(crate) fn run(args: &Cat, printer: &Printer) -> Result<Exit, Error> {
    let opened = open(&args.path, printer)?;
    let source = opened.source();
    let (name, index) = match source.find(&args.tensor) {
        Some(_) => (args.tensor.as_str(), None),
        None => slice::split(&args.tensor),
    };
    let stored = find(source, name)?;
    let selection = Selection::new(index, &stored.shape)?;
    let shape = selection.shape();
    let count = element_count(&shape).unwrap_or(usize::MAX);
    let all = args.full || printer.is_json() || args.npy.is_some();
    let shown = match count > MAX_VALUES && !all {
        true => Shown::ends(&shape),
        false => Shown::all(&shape),
    };
    if count > MAX_PRINTED_VALUES && all && args.npy.is_none() {
        return Err(Error::TooMuchToPrint {
            wanted: format!("{count} values"),
            limit: MAX_PRINTED_VALUES.to_string(),
        });
    }
    let most = args.npy.as_ref().map_or(MAX_READ_BYTES, |_| MAX_NPY_BYTES);
    let elements = Elements::read(source, name, &stored, &selection, &shown, most)?;
    let mut report = Report {
        name: name.to_string(),
        dtype: stored.dtype.to_string(),
        shape,
        read_bytes: elements.len_bytes(),
        stored_shape: stored.shape,
        npy: args.npy.clone(),
        values: Value::Null,
    };
    if let Some(path) = &args.npy {
        npy::write(path, &elements, &report.shape, printer)?;
    } else if printer.is_json() {
        report.values = print::json(&elements, &report.shape);
    }
    printer.report(&report, || {
        let name = visible::line(&report.name);
        let title = format!("{name} {}{:?}", report.dtype, report.shape);
        let title = printer.paint().text(Style::Dim, &title);
        match report.npy {
            Some(_) => format!("{title}\n"),
            None => format!("{title}\n{}\n", print::text(&elements, &shown)),
        }
    })?;
    Ok(Exit::Done)
}

/// The tensor called `name`, or the names that are nearly so.
pub(crate) fn find(source: &dyn Source, name: &str) -> Result<StoredTensor, Error> {
    source.find(name).ok_or_else(|| Error::NoSuchTensor {
        name: name.to_string(),
        near: Pattern::new(name).nearest(source.names()).map(Into::into),
    })
}
