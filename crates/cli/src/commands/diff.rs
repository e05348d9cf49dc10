//! `cairn diff`: are two checkpoints or models the same, and how far apart are they?

mod renames;
mod structure;
mod text;

use crate::args::Diff as Args;
use crate::error::{Error, Exit};
use crate::open::open;
use crate::printer::Printer;
use crate::units::size;
use cairn::checkpoint::statistics::{ScanOptions, compare};
use cairn::checkpoint::{Kept, SharedSource, Source};
use cairn::tensor::{DType, Difference, Tolerance};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use structure::{Changed, ChangedValue, Lonely, Renamed, Structure};

#[derive(Debug, Serialize)]
struct Report {
    left: String,
    right: String,
    same: bool,
    /// Tensors that both have, in the same shape.
    compared: usize,
    compared_bytes: u64,
    only_left: Vec<Lonely>,
    only_right: Vec<Lonely>,
    /// Tensors of one side that are probably others of the other side.
    renamed: Vec<Renamed>,
    /// Tensors whose shape or type is another.
    changed: Vec<Changed>,
    values: Vec<ChangedValue>,
    /// Worst first.
    differing: Vec<Differing>,
}

/// A tensor whose values are not the same on both sides.
#[derive(Debug, Serialize)]
struct Differing {
    name: String,
    elements: u64,
    differing_elements: u64,
    nan_mismatches: u64,
    max_absolute: f64,
    max_relative: f64,
    cosine: Option<f64>,
    /// Where the largest absolute difference is.
    worst: Option<Vec<usize>>,
}

/// One side.
struct Side {
    source: SharedSource,
    values: BTreeMap<String, Value>,
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, Error> {
    let start = Instant::now();
    let (left, right) = (side(&args.left, printer)?, side(&args.right, printer)?);
    let structure = Structure::new(&left.source, &right.source, args)?;
    let differing = measure(&left.source, &right.source, &structure, args, printer)?;
    let values = match args.keys.is_empty() {
        true => structure::changed_values(&left.values, &right.values),
        false => Vec::new(),
    };
    let mut report = Report {
        left: args.left.clone(),
        right: args.right.clone(),
        same: true,
        compared: structure.pairs.len(),
        compared_bytes: structure.len_bytes,
        only_left: structure.only_left,
        only_right: structure.only_right,
        renamed: structure.renamed,
        changed: structure.changed,
        values,
        differing,
    };
    report.same = report.is_same();
    printer.report(&report, || report.text(args.all, printer.paint()))?;
    let (bytes, seconds) = (size(report.compared_bytes), start.elapsed().as_secs_f64());
    printer.note(&format!("compared {bytes} in {seconds:.1} s"));
    Ok(if report.same {
        Exit::Done
    } else {
        Exit::Differs
    })
}

fn side(path: &str, printer: &Printer) -> Result<Side, Error> {
    let opened = open(path, printer)?;
    Ok(Side {
        values: opened.values().clone(),
        source: Arc::new(Kept::new(opened.into_source())),
    })
}

/// Compares the values of all tensors that both sides have; those that differ, worst first.
fn measure(
    left: &SharedSource,
    right: &SharedSource,
    structure: &Structure,
    args: &Args,
    printer: &Printer,
) -> Result<Vec<Differing>, Error> {
    let tolerance = Tolerance {
        absolute: args.atol,
        relative: args.rtol,
    };
    let mut options = ScanOptions {
        trust_checksums: args.trust_checksums,
        ..ScanOptions::default()
    };
    options.threads = args.threads.unwrap_or(options.threads);
    let pairs: Vec<(&str, &str)> = structure
        .pairs
        .iter()
        .map(|(ours, theirs)| (ours.as_str(), theirs.as_str()))
        .collect();
    let bar = printer.progress("diff", structure.len_bytes, options.progress.clone());
    let both: (&dyn Source, &dyn Source) = (left.as_ref(), right.as_ref());
    let found = compare(both, &pairs, tolerance, &options)?;
    drop(bar);
    let differing = pairs.iter().zip(found);
    let differing = differing.filter(|(_, difference)| difference.differing > 0);
    let mut differing: Vec<Differing> = differing
        .filter_map(|((name, _), difference)| Differing::new(left.as_ref(), name, &difference))
        .collect();
    differing.sort_by(|one, other| other.badness().total_cmp(&one.badness()));
    Ok(differing)
}

impl Differing {
    fn new(source: &dyn Source, name: &str, difference: &Difference) -> Option<Self> {
        let tensor = source.find(name)?;
        // Both parts of a complex element count, and both lie in the same place.
        let parts = if tensor.dtype == DType::C64 { 2 } else { 1 };
        let worst = difference.worst.map(|flat| flat / parts);
        Some(Self {
            name: name.to_string(),
            elements: difference.elements,
            differing_elements: difference.differing,
            nan_mismatches: difference.nan_mismatches,
            max_absolute: difference.max_absolute,
            max_relative: difference.max_relative,
            cosine: difference.cosine(),
            worst: worst.map(|flat| place(flat, &tensor.shape)),
        })
    }

    /// What the list is sorted by: NaN is worse than any distance.
    fn badness(&self) -> f64 {
        match self.nan_mismatches {
            0 => self.max_absolute,
            _ => f64::INFINITY,
        }
    }
}

/// The index of the element at place `flat` in row-major order.
fn place(flat: u64, shape: &[usize]) -> Vec<usize> {
    let mut rest = flat;
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&len| {
            let at = usize::try_from(rest % len as u64).unwrap_or(0);
            rest /= len as u64;
            at
        })
        .collect();
    index.reverse();
    index
}

impl Report {
    fn is_same(&self) -> bool {
        self.only_left.is_empty()
            && self.only_right.is_empty()
            && self.changed.is_empty()
            && self.values.is_empty()
            && self.differing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_in_row_major_order() {
        assert_eq!(place(0, &[]), [0; 0]);
        assert_eq!(place(5, &[2, 3]), [1, 2]);
        assert_eq!(place(7, &[2, 2, 2]), [1, 1, 1]);
    }
}
