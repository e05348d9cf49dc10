//! Reads the elements that a selection needs, and little else.
//!
//! Along each dim the indices that are needed are put into *runs*, those with a small gap between them into one; a box is a run
//! for each dim, and every box is read into memory of its own.

#![expect(
    clippy::single_range_in_vec_init,
    reason = "lists of ranges are meant, some of one range"
)]

use super::print::Shown;
use crate::error::Error;
use crate::slice::{Picked, Selection};
use crate::units::size;
use cairn::checkpoint::{LoadOptions, Source, StoredTensor, Strictness, Target, load};
use cairn::sharding::{Listed, Piece, Region, TensorSpec};
use cairn::tensor::{DType, row_major_strides};
use std::ops::Range;

/// Storage is read in blocks of this size: a smaller gap costs nothing to read across.
const BLOCK_BYTES: usize = 64 << 10;
/// More boxes than this are joined.
const MAX_BOXES: usize = 1024;

/// The elements that were picked, and where they lie in memory.
pub(super) struct Elements<'a> {
    pub(super) dtype: DType,
    selection: &'a Selection,
    /// For each dim the runs, in order.
    runs: Vec<Vec<Range<usize>>>,
    /// For each box, counted in row-major order over the runs, its bytes.
    boxes: Vec<Vec<u8>>,
}

impl<'a> Elements<'a> {
    /// Reads what is shown of a selection of the tensor `name`, at most `most_bytes`.
    pub(super) fn read(
        source: &dyn Source,
        name: &str,
        stored: &StoredTensor,
        selection: &'a Selection,
        shown: &Shown,
        most_bytes: usize,
    ) -> Result<Self, Error> {
        let mut elements = Self {
            dtype: stored.dtype,
            selection,
            runs: vec![Vec::new(); stored.shape.len()],
            boxes: Vec::new(),
        };
        if shown.is_empty() {
            return Ok(elements);
        }
        elements.runs = runs(stored, selection, shown);
        let regions = regions(&elements.runs);
        let too_much = |len: u64| Error::TooMuchToPrint {
            wanted: size(len),
            limit: size(most_bytes as u64),
        };
        let count = |region: &Region| {
            region
                .extent
                .iter()
                .try_fold(1_usize, |n, &e| n.checked_mul(e))
        };
        let lens = regions
            .iter()
            .map(|region| stored.dtype.len_bytes(count(region)?));
        let lens: Option<Vec<usize>> = lens.collect();
        let lens = lens.ok_or_else(|| too_much(u64::MAX))?;
        let total = lens
            .iter()
            .fold(0, |sum: u64, &len| sum.saturating_add(len as u64));
        if total > most_bytes as u64 {
            return Err(too_much(total));
        }
        elements.boxes = lens.into_iter().map(|len| vec![0; len]).collect();
        load_boxes(source, name, stored, regions, &mut elements.boxes)?;
        Ok(elements)
    }

    /// The bytes in memory.
    pub(super) fn len_bytes(&self) -> u64 {
        self.boxes.iter().map(|bytes| bytes.len() as u64).sum()
    }

    /// The bytes an element lies in, and which of them it is; it stands at `place` of what was picked.
    pub(super) fn at(&self, place: &[usize], index: &mut Vec<usize>) -> (&[u8], usize) {
        self.selection.source(place, index);
        let (mut nth, mut element) = (0, 0);
        for (runs, &index) in self.runs.iter().zip(&*index) {
            let run = runs.partition_point(|run| run.end <= index);
            nth = nth * runs.len() + run;
            element = element * runs[run].len() + (index - runs[run].start);
        }
        (&self.boxes[nth], element)
    }
}

/// Which indices are read along each dim.
fn runs(stored: &StoredTensor, selection: &Selection, shown: &Shown) -> Vec<Vec<Range<usize>>> {
    // Elements that share bytes are read together.
    if stored.dtype.bits() < 8 {
        return stored.shape.iter().map(|&len| vec![0..len]).collect();
    }
    let strides = row_major_strides(&stored.shape);
    let mut runs: Vec<Vec<Range<usize>>> = Vec::with_capacity(strides.len());
    for (dim, picked) in selection.picked.iter().enumerate() {
        let along = selection.along(dim);
        let places = along.map_or(vec![0..1], |along| shown.places(along));
        let width = strides[dim].saturating_mul(stored.dtype.bits() / 8);
        runs.push(runs_of(picked, &places, BLOCK_BYTES / width.max(1)));
    }
    while runs.iter().map(Vec::len).product::<usize>() > MAX_BOXES {
        let Some(longest) = runs.iter_mut().max_by_key(|runs| runs.len()) else {
            break;
        };
        let joined = longest[0].start..longest[longest.len() - 1].end;
        *longest = vec![joined];
    }
    runs
}

/// The runs around the indices at some places, with gaps up to `gap` read across.
fn runs_of(picked: &Picked, places: &[Range<usize>], gap: usize) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    for places in places.iter().filter(|places| !places.is_empty()) {
        match picked {
            Picked::Range { step, .. }
                if step.unsigned_abs() > gap as u128 + 1 && places.len() <= MAX_BOXES =>
            {
                runs.extend(
                    places
                        .clone()
                        .map(|nth| picked.index(nth))
                        .map(|at| at..at + 1),
                );
            }
            Picked::Range { .. } => {
                let (one, other) = (picked.index(places.start), picked.index(places.end - 1));
                runs.push(one.min(other)..one.max(other) + 1);
            }
            Picked::List(list) => runs.extend(list[places.clone()].iter().map(|&at| at..at + 1)),
        }
    }
    runs.sort_by_key(|run| run.start);
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last) if run.start <= last.end.saturating_add(gap) => {
                last.end = last.end.max(run.end)
            }
            _ => joined.push(run),
        }
    }
    joined
}

/// A box for each choice of runs, in row-major order.
fn regions(runs: &[Vec<Range<usize>>]) -> Vec<Region> {
    let mut regions = vec![Region::whole(&[])];
    for runs in runs {
        regions = regions
            .iter()
            .flat_map(|region| {
                runs.iter().map(|run| {
                    let mut region = region.clone();
                    region.offset.push(run.start);
                    region.extent.push(run.len());
                    region
                })
            })
            .collect();
    }
    regions
}

fn load_boxes(
    source: &dyn Source,
    name: &str,
    stored: &StoredTensor,
    regions: Vec<Region>,
    boxes: &mut [Vec<u8>],
) -> Result<(), Error> {
    // As if each box were held by a rank of its own.
    let pieces = regions.into_iter().map(|region| vec![Piece::whole(region)]);
    let listed = Listed::new(pieces.enumerate().collect());
    let spec = TensorSpec::new(stored.dtype, stored.shape.clone(), listed)?;
    let targets = boxes.iter_mut().enumerate();
    let targets = targets.map(|(rank, bytes)| Target::new(name, &spec, rank, bytes));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let options = LoadOptions {
        strictness: Strictness::PARTIAL,
        ..LoadOptions::default()
    };
    load(source, targets, &options)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs_for(index: &str, len: usize, gap: usize) -> Vec<Range<usize>> {
        let selection = Selection::new(Some(index), &[len]).unwrap();
        let picked = &selection.picked[0];
        runs_of(picked, &[0..picked.count()], gap)
    }

    #[test]
    fn near_indices_are_read_together_and_far_ones_are_not() {
        assert_eq!(runs_for("2:9", 10, 0), [2..9]);
        assert_eq!(runs_for("::-3", 10, 1), [0..1, 3..4, 6..7, 9..10]);
        assert_eq!(runs_for("::-3", 10, 2), [0..10]);
        assert_eq!(runs_for("[7, 1, 2, 7]", 10, 0), [1..3, 7..8]);
        assert!(runs_for("3:3", 10, 0).is_empty());
    }

    #[test]
    fn too_many_boxes_become_one() {
        let stored = StoredTensor {
            dtype: DType::F32,
            shape: vec![5000, 5000, 20_000],
        };
        let selection = Selection::new(Some("::100, ::100, 0"), &stored.shape).unwrap();
        let shown = Shown::all(&selection.shape());
        let runs = runs(&stored, &selection, &shown);
        let counts: Vec<usize> = runs.iter().map(Vec::len).collect();
        assert!(counts.iter().product::<usize>() <= MAX_BOXES, "{counts:?}");
    }
}
