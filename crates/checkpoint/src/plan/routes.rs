//! Which stored pieces fill which targets.

use super::{MANY_TARGETS, Transfer, threads};
use crate::Error;
use crate::overlap::overlaps;
use crate::source::{Source, StoredPiece};
use crate::target::Wanted;
use crate::workers::gather;
use cairn_sharding::{LocalBox, Region};
use cairn_tensor::Runs;
use std::collections::BTreeMap;

/// So many targets are planned at a time by one thread.
const TARGETS_AT_ONCE: usize = 32;

/// The copies that fill targets, by file. Source offsets count from the start of the data.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) by_file: BTreeMap<usize, Vec<Transfer>>,
    /// The bytes of all copies.
    pub(crate) target_bytes: u64,
}

impl Routes {
    /// Finds what fills each of `wanted`, which come with the numbers of their targets.
    pub(crate) fn new<'a>(
        source: &dyn Source,
        wanted: impl Iterator<Item = (usize, &'a Wanted)>,
    ) -> Result<Self, Error> {
        let wanted: Vec<(usize, &Wanted)> = wanted.collect();
        let many = wanted.len() >= MANY_TARGETS;
        let batches: Vec<&[(usize, &Wanted)]> = wanted.chunks(TARGETS_AT_ONCE).collect();
        let found = gather(batches.len(), threads(many), |index| {
            let mut found = Vec::new();
            for (target, wanted) in batches[index] {
                transfers(source, *target, wanted, &mut found)?;
            }
            Ok::<_, Error>(found)
        })?;
        let mut routes = Self::default();
        for (file, transfer) in found.into_iter().flatten() {
            routes.target_bytes += transfer.runs.len_bytes() as u64;
            routes.by_file.entry(file).or_default().push(transfer);
        }
        Ok(routes)
    }
}

/// Adds the copies that fill one target, with the file each comes from. Source offsets count from the start of the data.
fn transfers(
    source: &dyn Source,
    target: usize,
    wanted: &Wanted,
    found: &mut Vec<(usize, Transfer)>,
) -> Result<(), Error> {
    for held in wanted.boxes() {
        let pieces = source.pieces(&wanted.name, &held.region)?;
        let mut open = vec![held];
        for stored in pieces {
            open = take(&stored, target, wanted, open, found)?;
        }
        if let Some(hole) = open.first() {
            return Err(Error::damaged(
                &wanted.name,
                format!("no file holds its elements `{}`", hole.region),
            ));
        }
    }
    Ok(())
}

/// Fills what it can of the `open` boxes from a stored piece, and returns what is still open.
fn take(
    stored: &StoredPiece,
    target: usize,
    wanted: &Wanted,
    open: Vec<LocalBox>,
    found: &mut Vec<(usize, Transfer)>,
) -> Result<Vec<LocalBox>, Error> {
    let boxes = stored.boxes();
    for overlap in overlaps(&boxes, &open) {
        let runs = Runs::between(wanted.spec.dtype(), &overlap.source, &overlap.target);
        let runs = runs.map_err(|source| Error::Copy {
            name: wanted.name.clone(),
            source,
        })?;
        let transfer = Transfer::new(target, runs).moved(stored.offset);
        found.push((stored.file, transfer));
    }
    let mut left = open;
    for covered in &boxes {
        let rest = left.iter().flat_map(|held| without(held, &covered.region));
        left = rest.collect();
    }
    Ok(left)
}

/// What is left of a box without `covered`.
fn without<'a>(held: &'a LocalBox, covered: &Region) -> impl Iterator<Item = LocalBox> + use<'a> {
    let rest = held.region.subtract(covered).into_iter();
    rest.filter_map(|region| {
        let local = held.place_of(&region)?;
        Some(LocalBox { region, local })
    })
}
