//! Which distinct shards meet a region, found by arithmetic on the cuts rather than by asking every rank.

use std::ops::Range;

use crate::{
    DimSharding, LocalBox, Mesh, Region, Sharding, chunk, flat,
    local::Local,
    split::{chunk_len, subrange},
};

/// A distinct shard that meets a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The rank that stands for all holders of the shard: replica 0, and the first term if it is partial.
    pub rank: usize,
    /// What the shard has of the region, and where it lies in each holder's buffer.
    pub boxes: Vec<LocalBox>,
}

impl Sharding {
    /// The positions that stand for the shards that meet `region`, in row-major order of the cuts.
    pub(crate) fn cell_positions(&self, shape: &[usize], region: &Region) -> Vec<usize> {
        let Some(region) = region.intersect(&Region::whole(shape)) else {
            return Vec::new();
        };
        let pins = self.pins().iter();
        let pinned = pins.map(|&(axis, index)| index * self.mesh().stride(axis));
        let mut positions: Vec<usize> = vec![pinned.sum()];
        for (dim, split) in self.dims().iter().enumerate() {
            if split.axes.is_empty() {
                continue;
            }
            let wanted = region.offset[dim]..region.end(dim);
            let steps = dim_positions(self.mesh(), split, shape[dim], wanted);
            positions = positions
                .into_iter()
                .flat_map(|from| steps.iter().map(move |step| from + step))
                .collect();
        }
        if !self.flat().is_empty() {
            let cut = |position| self.flat_positions(shape, &region, position);
            positions = positions.into_iter().flat_map(cut).collect();
        }
        positions
    }

    /// The positions along the flat axes whose elements of the local tensor at `position` meet `region`.
    fn flat_positions(&self, shape: &[usize], region: &Region, position: usize) -> Vec<usize> {
        let local = Local::at(self, shape, position);
        let wanted: Vec<Region> = local
            .parts()
            .filter_map(|part| {
                let shared = part.region.intersect(region)?;
                Some(shared.translated(&part.region.offset, &part.local.offset))
            })
            .collect();
        let next = |at| {
            let parts = wanted.iter();
            parts
                .filter_map(|part| flat::next_in(&local.shape, part, at))
                .min()
        };
        let mut positions = Vec::new();
        let mut at = 0;
        while at < local.len() {
            let Some(element) = next(at) else { break };
            let (offset, range) = holder(self.mesh(), self.flat(), local.len(), element);
            positions.push(position + offset);
            at = range.end;
        }
        positions
    }
}

/// The steps from a position along a dim's axes to the shards that meet a range of the dim.
fn dim_positions(mesh: &Mesh, dim: &DimSharding, len: usize, wanted: Range<usize>) -> Vec<usize> {
    let groups = meeting(&(0..len), dim.groups, &wanted).map(|group| chunk(len, dim.groups, group));
    let mut found: Vec<(usize, Range<usize>)> = groups.map(|group| (0, group)).collect();
    for &axis in &dim.axes {
        let size = mesh.axis_size(axis);
        let cut = |(step, range): (usize, Range<usize>)| {
            let parts = meeting(&range, size, &wanted);
            parts.map(move |index| {
                (
                    step + index * mesh.stride(axis),
                    subrange(range.clone(), size, index),
                )
            })
        };
        found = found.into_iter().flat_map(cut).collect();
    }
    // Several groups may lead to one shard.
    let mut steps: Vec<usize> = found.into_iter().map(|(step, _)| step).collect();
    if dim.groups > 1 {
        steps.sort_unstable();
        steps.dedup();
    }
    steps
}

/// Which parts of `range` meet `wanted`, if the two meet.
fn meeting(range: &Range<usize>, parts: usize, wanted: &Range<usize>) -> Range<usize> {
    let chunk = chunk_len(range.len(), parts).max(1);
    let first = wanted.start.saturating_sub(range.start) / chunk;
    let last = wanted.end.min(range.end) - range.start;
    first..last.div_ceil(chunk)
}

/// Which part of `0..len`, cut along each axis, holds an element: its step from the start, and its range.
fn holder(mesh: &Mesh, axes: &[usize], len: usize, element: usize) -> (usize, Range<usize>) {
    let (mut step, mut range) = (0, 0..len);
    for &axis in axes {
        let size = mesh.axis_size(axis);
        let index = (element - range.start) / chunk_len(range.len(), size);
        step += index * mesh.stride(axis);
        range = subrange(range, size, index);
    }
    (step, range)
}
