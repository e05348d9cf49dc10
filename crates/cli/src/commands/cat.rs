//! `cairn cat`: values of a slice of a tensor.

use crate::args::Cat;
use crate::error::{Error, Exit};
use crate::open::open;
use crate::printer::Printer;
use crate::slice::{self, Picked};
use crate::table::Style;
use crate::units::size;
use cairn::checkpoint::{LoadOptions, Pattern, Source, StoredTensor, Strictness, Target, load};
use cairn::sharding::{Listed, Piece, Region, TensorSpec};
use cairn::tensor::{DType, element_count, format_element, row_major_strides};
use serde::Serialize;
use serde_json::Value;

/// The most bytes read for one look.
const MAX_READ_BYTES: usize = 1 << 30;
/// The most values printed, abbreviated or not.
const MAX_PRINTED_VALUES: usize = 1 << 24;
/// More values than this are abbreviated.
const MAX_VALUES: usize = 1000;
/// How many entries an abbreviated dim shows at each end.
const EDGE: usize = 3;

#[derive(Debug, Serialize)]
struct Report {
    name: String,
    dtype: String,
    /// Of what was picked.
    shape: Vec<usize>,
    stored_shape: Vec<usize>,
    /// The box that was read.
    offset: Vec<usize>,
    extent: Vec<usize>,
    values: Value,
}

/// The elements of a box, and which of them were picked.
struct Values<'a> {
    dtype: DType,
    bytes: &'a [u8],
    region: &'a Region,
    strides: Vec<usize>,
    picked: &'a [Picked],
    abbreviated: bool,
}

pub(crate) fn run(args: &Cat, printer: &Printer) -> Result<Exit, Error> {
    let opened = open(&args.path, printer)?;
    let source = opened.source();
    let (name, slice) = match source.find(&args.tensor) {
        Some(_) => (args.tensor.as_str(), None),
        None => slice::split(&args.tensor),
    };
    let stored = find(source, name)?;
    let picked = slice::resolve(slice, &stored.shape)?;
    let region = region_to_read(&stored, &picked);
    let bytes = read(source, name, &stored, &region)?;
    let shape: Vec<usize> = picked
        .iter()
        .filter(|dim| dim.kept)
        .map(|dim| dim.count)
        .collect();
    let count = element_count(&shape).unwrap_or(usize::MAX);
    let abbreviated = count > MAX_VALUES && !args.full && !printer.is_json();
    if count > MAX_PRINTED_VALUES && !abbreviated {
        return Err(Error::TooMuchToPrint {
            wanted: format!("{count} values"),
            limit: MAX_PRINTED_VALUES.to_string(),
        });
    }
    let values = Values {
        dtype: stored.dtype,
        bytes: &bytes,
        strides: row_major_strides(&region.extent),
        region: &region,
        picked: &picked,
        abbreviated,
    };
    let report = Report {
        values: match (printer.is_json(), count) {
            (false, _) => Value::Null,
            (true, 0) => Value::Array(Vec::new()),
            (true, _) => values.json(0, 0),
        },
        name: name.to_string(),
        dtype: stored.dtype.to_string(),
        shape,
        stored_shape: stored.shape,
        offset: region.offset.clone(),
        extent: region.extent.clone(),
    };
    printer.report(&report, || {
        let title = format!("{} {}{:?}", report.name, report.dtype, report.shape);
        let title = printer.paint().text(Style::Dim, &title);
        match count {
            0 => format!("{title}\n[]\n"),
            _ => format!("{title}\n{}\n", values.text(0, 0, 0)),
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

/// The box around what was picked; all of a tensor whose elements share bytes.
fn region_to_read(stored: &StoredTensor, picked: &[Picked]) -> Region {
    match stored.dtype.bits() < 8 {
        true => Region::whole(&stored.shape),
        false => slice::bounds(picked),
    }
}

fn read(
    source: &dyn Source,
    name: &str,
    stored: &StoredTensor,
    region: &Region,
) -> Result<Vec<u8>, Error> {
    if region.is_empty() {
        return Ok(Vec::new());
    }
    let len = stored.dtype.len_bytes(region.element_count());
    let len = len.filter(|len| *len <= MAX_READ_BYTES).ok_or_else(|| {
        let wanted = len.map_or(u64::MAX, |len| len as u64);
        Error::TooMuchToPrint {
            wanted: size(wanted),
            limit: size(MAX_READ_BYTES as u64),
        }
    })?;
    let piece = Piece::whole(region.clone());
    let listed = Listed::new([(0, vec![piece])].into());
    let spec = TensorSpec::new(stored.dtype, stored.shape.clone(), listed)?;
    let mut bytes = vec![0; len];
    // A single listed box may have any number of dims, but lies in memory like a row of bytes.
    let target = Target::new(name, &spec, 0, &mut bytes)?;
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    load(source, vec![target], &options)?;
    Ok(bytes)
}

impl Values<'_> {
    /// The places of `dim` that are shown; `None` stands for those left out.
    fn shown(&self, dim: usize) -> Vec<Option<usize>> {
        let count = self.picked[dim].count;
        if !self.abbreviated || count <= 2 * EDGE {
            return (0..count).map(Some).collect();
        }
        let front = (0..EDGE).map(Some);
        let back = (count - EDGE..count).map(Some);
        front.chain([None]).chain(back).collect()
    }

    /// How far into the buffer place `nth` of `dim` lies.
    fn step(&self, dim: usize, nth: usize) -> usize {
        (self.picked[dim].index(nth) - self.region.offset[dim]) * self.strides[dim]
    }

    /// The values from `dim` on, in brackets as NumPy prints them.
    fn text(&self, dim: usize, at: usize, depth: usize) -> String {
        let Some(picked) = self.picked.get(dim) else {
            return format_element(self.dtype, self.bytes, at).unwrap_or_default();
        };
        if !picked.kept {
            return self.text(dim + 1, at + self.step(dim, 0), depth);
        }
        let inner = self.picked[dim + 1..].iter().filter(|dim| dim.kept).count();
        let separator = match inner {
            0 => ", ".to_string(),
            _ => format!(",{}{}", "\n".repeat(inner), " ".repeat(depth + 1)),
        };
        let entries: Vec<String> = self
            .shown(dim)
            .into_iter()
            .map(|nth| match nth {
                Some(nth) => self.text(dim + 1, at + self.step(dim, nth), depth + 1),
                None => "…".to_string(),
            })
            .collect();
        format!("[{}]", entries.join(&separator))
    }

    /// The values from `dim` on, as nested arrays.
    fn json(&self, dim: usize, at: usize) -> Value {
        let Some(picked) = self.picked.get(dim) else {
            return number(&format_element(self.dtype, self.bytes, at).unwrap_or_default());
        };
        match picked.kept {
            false => self.json(dim + 1, at + self.step(dim, 0)),
            true => (0..picked.count)
                .map(|nth| self.json(dim + 1, at + self.step(dim, nth)))
                .collect(),
        }
    }
}

/// A number where JSON has one; infinities, NaN and complex values are text.
fn number(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_string()))
}
