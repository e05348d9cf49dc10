//! The boxes a move is made of: each lies in one target shard, and the same source shards hold all of it.

use cairn_sharding::{Distribution, LocalBox, Region, TensorSpec};

use crate::Error;

/// A distinct shard of the target, and where its boxes come from.
pub(crate) struct Shard {
    /// The rank that stands for its holders.
    pub(crate) rank: usize,
    /// Its boxes.
    pub(crate) boxes: Vec<LocalBox>,
    /// The same elements, cut so that each box has one set of source shards.
    pub(crate) atoms: Vec<Atom>,
}

/// A box that all its source shards hold completely.
pub(crate) struct Atom {
    /// The box in the target shard.
    pub(crate) target: LocalBox,
    /// The source shards that hold it; one on a mesh, several where listed pieces overlap.
    pub(crate) holders: Vec<Holder>,
}

/// A source shard that holds a box.
#[derive(Clone)]
pub(crate) struct Holder {
    /// The rank that stands for its holders.
    pub(crate) rank: usize,
    /// The box in the source shard.
    pub(crate) part: LocalBox,
}

impl Atom {
    pub(crate) fn region(&self) -> &Region {
        &self.target.region
    }
}

/// Cuts every target shard into atoms.
pub(crate) fn between(source: &TensorSpec, target: &TensorSpec) -> Result<Vec<Shard>, Error> {
    let cells = target.cells_overlapping(&Region::whole(target.shape()));
    let shard = |cell: cairn_sharding::Cell| {
        let mut atoms = Vec::new();
        for part in &cell.boxes {
            atoms.extend(match source.distribution() {
                Distribution::Mesh(_) => disjoint(source, part),
                _ => overlaid(source, part, cell.rank)?,
            });
        }
        Ok(Shard {
            rank: cell.rank,
            boxes: cell.boxes,
            atoms,
        })
    };
    cells.into_iter().map(shard).collect()
}

/// On a mesh the source shards are disjoint and cover the tensor.
fn disjoint(source: &TensorSpec, part: &LocalBox) -> Vec<Atom> {
    let cells = source.cells_overlapping(&part.region).into_iter();
    let holders = cells.flat_map(|cell| {
        let rank = cell.rank;
        cell.boxes
            .into_iter()
            .map(move |part| Holder { rank, part })
    });
    holders
        .map(|holder| Atom {
            target: clipped(part, &holder.part.region),
            holders: vec![holder],
        })
        .collect()
}

/// Listed source shards may overlap or leave gaps: cut the box along all their borders.
fn overlaid(source: &TensorSpec, part: &LocalBox, rank: usize) -> Result<Vec<Atom>, Error> {
    let mut pieces: Vec<(Region, Vec<Holder>)> = vec![(part.region.clone(), Vec::new())];
    for cell in source.cells_overlapping(&part.region) {
        for held in cell.boxes {
            let cut = |(region, holders)| cut_along(region, holders, cell.rank, &held);
            pieces = pieces.into_iter().flat_map(cut).collect();
        }
    }
    let atom = |(region, holders): (Region, Vec<Holder>)| {
        if holders.is_empty() {
            return Err(Error::Uncovered { region, rank });
        }
        let clip = |holder: Holder| Holder {
            part: clipped(&holder.part, &region),
            ..holder
        };
        Ok(Atom {
            target: clipped(part, &region),
            holders: holders.into_iter().map(clip).collect(),
        })
    };
    pieces.into_iter().map(atom).collect()
}

/// Cuts a region into what `held` has of it, with one holder more, and the rest.
fn cut_along(
    region: Region,
    holders: Vec<Holder>,
    rank: usize,
    held: &LocalBox,
) -> Vec<(Region, Vec<Holder>)> {
    let Some(shared) = region.intersect(&held.region) else {
        return vec![(region, holders)];
    };
    let rest = region.subtract(&shared).into_iter();
    let mut pieces: Vec<_> = rest.map(|rest| (rest, holders.clone())).collect();
    let holder = Holder {
        rank,
        part: held.clone(),
    };
    pieces.push((shared, [holders, vec![holder]].concat()));
    pieces
}

/// The part of a box inside a region it contains.
pub(crate) fn clipped(part: &LocalBox, region: &Region) -> LocalBox {
    if part.region == *region {
        return part.clone();
    }
    part.clip(region).expect("the region lies inside the box")
}
