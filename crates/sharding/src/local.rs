//! What one rank holds of a tensor on a mesh.

use std::ops::Range;

use cairn_tensor::Strided;

use crate::{
    DimSharding, LocalBox, Mesh, Piece, Region, Sharding, chunk, flat, piece::placed,
    split::subrange,
};

/// The local tensor of one rank, and which of its elements the rank keeps.
pub(crate) struct Local {
    /// For each dim the ranges of the tensor that stand one after another in the local tensor.
    ranges: Vec<Vec<Range<usize>>>,
    /// The shape of the local tensor.
    pub(crate) shape: Vec<usize>,
    /// The elements of the flattened local tensor that the rank keeps, if it is cut flat.
    flat: Option<Range<usize>>,
}

/// A box of the tensor that is also a box of the local tensor.
pub(crate) struct Part {
    /// The box in the tensor.
    pub(crate) region: Region,
    /// The box in the local tensor.
    pub(crate) local: Region,
}

impl Local {
    /// The local tensor at a position of the mesh.
    pub(crate) fn at(sharding: &Sharding, shape: &[usize], position: usize) -> Local {
        let mesh = sharding.mesh();
        let ranges: Vec<_> = shape
            .iter()
            .zip(sharding.dims())
            .map(|(&len, dim)| dim_ranges(mesh, dim, len, position))
            .collect();
        let shape: Vec<usize> = ranges
            .iter()
            .map(|ranges| ranges.iter().map(Range::len).sum())
            .collect();
        let mut local = Local {
            ranges,
            shape,
            flat: None,
        };
        if !sharding.flat().is_empty() {
            local.flat = Some(nested(mesh, sharding.flat(), 0..local.len(), position));
        }
        local
    }

    /// The number of elements of the local tensor before it is cut flat.
    pub(crate) fn len(&self) -> usize {
        cairn_tensor::element_count(&self.shape).expect("no larger than the tensor")
    }

    /// The shape of the rank's buffer.
    pub(crate) fn buffer_shape(self) -> Vec<usize> {
        match self.flat {
            Some(flat) => vec![flat.len()],
            None => self.shape,
        }
    }

    /// The boxes of the tensor that make up the local tensor, in row-major order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let count: usize = self.ranges.iter().map(Vec::len).product();
        (0..count).map(|part| self.part(part))
    }

    fn part(&self, mut number: usize) -> Part {
        let mut region = Region::whole(&self.shape);
        let mut local = Region::whole(&self.shape);
        for (dim, ranges) in self.ranges.iter().enumerate().rev() {
            let index = number % ranges.len();
            number /= ranges.len();
            region.offset[dim] = ranges[index].start;
            region.extent[dim] = ranges[index].len();
            local.offset[dim] = ranges[..index].iter().map(Range::len).sum();
        }
        local.extent.clone_from(&region.extent);
        Part { region, local }
    }

    /// The pieces the rank keeps.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let cut = |part: Part| {
            let Some(kept) = &self.flat else {
                return Piece::whole(part.region);
            };
            // Elements of the part stand in the same order in the local tensor, so a range of the one is
            // a range of the other.
            let [start, end] =
                [kept.start, kept.end].map(|at| flat::count_before(&self.shape, &part.local, at));
            let whole = start == 0 && end == part.local.element_count();
            Piece {
                flat: (!whole).then_some(start..end),
                region: part.region,
            }
        };
        let pieces = self.parts().map(cut);
        pieces.filter(|piece| !piece.is_empty()).collect()
    }

    /// The boxes the rank keeps, and where they lie in its buffer.
    pub(crate) fn boxes(&self) -> Vec<LocalBox> {
        let buffer = Strided::contiguous(&self.shape);
        let place =
            |run: &Region, start| placed(&buffer, run, start).expect("a box of the local tensor");
        let Some(kept) = &self.flat else {
            let parts = self.parts().filter(|part| !part.region.is_empty());
            let boxes = parts.map(|Part { region, local }| LocalBox {
                local: place(&local, 0),
                region,
            });
            return boxes.collect();
        };
        let runs = flat::boxes(&self.shape, kept.clone());
        let mut boxes = Vec::new();
        for part in self.parts() {
            for run in runs.iter().filter_map(|run| run.intersect(&part.local)) {
                boxes.push(LocalBox {
                    local: place(&run, kept.start),
                    region: run.translated(&part.local.offset, &part.region.offset),
                });
            }
        }
        boxes
    }
}

/// The ranges of one dim that fall to a position; ranges that touch are joined, empty ones dropped.
fn dim_ranges(mesh: &Mesh, dim: &DimSharding, len: usize, position: usize) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::with_capacity(dim.groups);
    for group in 0..dim.groups {
        let range = nested(mesh, &dim.axes, chunk(len, dim.groups, group), position);
        match ranges.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}

/// The part of `range` that falls to a position after a cut along each axis, outermost first.
fn nested(mesh: &Mesh, axes: &[usize], range: Range<usize>, position: usize) -> Range<usize> {
    axes.iter().fold(range, |range, &axis| {
        subrange(range, mesh.axis_size(axis), mesh.coord(position, axis))
    })
}
