//! A tensor in the making: which boxes of which sources it is so far.

mod blocks;
mod narrow;
mod regrid;

use crate::compiled::{Piece, SourceBox, Step};
use crate::error::{MAX_PIECES, Problem};
use cairn_sharding::Region;
use cairn_tensor::{DType, element_count};

pub(crate) use narrow::narrow;

/// A tensor that statements work on: its pieces cover it, each element once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Value {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) pieces: Vec<Piece>,
}

impl Value {
    /// A source, all of it.
    pub(crate) fn source(name: &str, dtype: DType, shape: &[usize]) -> Self {
        let region = Region::whole(shape);
        let piece = Piece {
            region: region.clone(),
            source: Some(SourceBox {
                name: name.to_owned(),
                region,
            }),
            steps: Vec::new(),
        };
        Self {
            dtype,
            shape: shape.to_vec(),
            pieces: match shape.contains(&0) {
                true => Vec::new(),
                false => vec![piece],
            },
        }
    }

    /// The box of it that `region` is.
    pub(crate) fn slice(&self, region: &Region) -> Self {
        let pieces = self.pieces.iter();
        let pieces = pieces.filter_map(|piece| {
            let mut part = narrow(piece, &piece.region.intersect(region)?);
            for (offset, start) in part.region.offset.iter_mut().zip(&region.offset) {
                *offset -= start;
            }
            Some(part)
        });
        Self {
            dtype: self.dtype,
            shape: region.extent.clone(),
            pieces: pieces.collect(),
        }
    }

    /// Parts of these sizes along `dim`, side by side.
    pub(crate) fn split(&self, dim: usize, sizes: &[usize]) -> Vec<Self> {
        let whole = Region::whole(&self.shape);
        let mut start = 0;
        let part = |&size: &usize| {
            start += size;
            match size == self.shape[dim] {
                true => self.clone(),
                false => self.slice(&whole.with_dim(dim, start - size, size)),
            }
        };
        sizes.iter().map(part).collect()
    }

    /// Tensors joined along `dim`.
    pub(crate) fn concat(
        parts: impl IntoIterator<Item = Self>,
        dim: usize,
    ) -> Result<Self, Problem> {
        let mut parts = parts.into_iter();
        let mut joined = parts.next().ok_or(Problem::NothingToJoin)?;
        for part in parts {
            joined.append(part, dim)?;
        }
        Ok(joined)
    }

    fn append(&mut self, part: Self, dim: usize) -> Result<(), Problem> {
        let fits = |(i, (a, b)): (usize, (&usize, &usize))| i == dim || a == b;
        let mut dims = self.shape.iter().zip(&part.shape).enumerate();
        if self.shape.len() != part.shape.len() || !dims.all(fits) {
            return Err(Problem::JoinedShapes {
                first: self.shape.clone(),
                other: part.shape,
                dim,
            });
        }
        if self.dtype != part.dtype {
            return Err(Problem::JoinedDTypes {
                first: self.dtype,
                other: part.dtype,
            });
        }
        let start = self.shape[dim];
        let end = start.checked_add(part.shape[dim]);
        self.shape[dim] = end.ok_or(Problem::TooLarge { what: "a tensor" })?;
        for mut piece in part.pieces {
            piece.region.offset[dim] += start;
            match self.pieces.last_mut() {
                Some(last) if goes_on(last, &piece, dim) => extend(last, &piece, dim),
                _ => self.pieces.push(piece),
            }
        }
        self.check_pieces()
    }

    fn check_pieces(&self) -> Result<(), Problem> {
        match self.pieces.len() > MAX_PIECES {
            true => Err(Problem::TooLarge {
                what: "the number of pieces of a tensor",
            }),
            false => Ok(()),
        }
    }

    /// Dim `i` of the result is dim `order[i]` of this.
    pub(crate) fn permute(&self, order: &[usize]) -> Self {
        let permuted = |of: &[usize]| -> Vec<usize> { order.iter().map(|&dim| of[dim]).collect() };
        let mut value = self.clone();
        value.shape = permuted(&self.shape);
        for piece in &mut value.pieces {
            piece.region.offset = permuted(&piece.region.offset);
            piece.region.extent = permuted(&piece.region.extent);
            push(piece, Step::Permute(order.to_vec()));
        }
        value
    }

    /// The same values in another element type.
    pub(crate) fn cast(&self, dtype: DType) -> Self {
        let mut value = self.clone();
        if value.dtype != dtype {
            value.dtype = dtype;
            for piece in &mut value.pieces {
                push(piece, Step::Cast(dtype));
            }
        }
        value
    }

    /// The same elements in row-major order, in another shape.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Result<Self, Problem> {
        let count = element_count(&self.shape);
        if count.is_none() || count != element_count(shape) {
            return Err(Problem::Reshape {
                from: self.shape.clone(),
                to: shape.to_vec(),
            });
        }
        let mut value = Self {
            dtype: self.dtype,
            shape: shape.to_vec(),
            pieces: Vec::new(),
        };
        for piece in &self.pieces {
            for (from, to) in regrid::regrid(&self.shape, shape, &piece.region)? {
                let mut part = narrow(piece, &from);
                push(&mut part, Step::Reshape(to.extent.clone()));
                part.region = to;
                value.pieces.push(part);
            }
            value.check_pieces()?;
        }
        Ok(value)
    }

    /// A tensor of this shape that begins as this one does, its other elements `fill`.
    pub(crate) fn pad(&self, shape: &[usize], fill: f64) -> Result<Self, Problem> {
        let small = self.shape.iter().zip(shape).any(|(have, want)| have > want);
        if shape.len() != self.shape.len() || small || element_count(shape).is_none() {
            return Err(Problem::Pad {
                from: self.shape.clone(),
                to: shape.to_vec(),
            });
        }
        let mut value = self.clone();
        value.shape = shape.to_vec();
        let rest = Region::whole(shape).subtract(&Region::whole(&self.shape));
        value.pieces.extend(rest.into_iter().map(|region| Piece {
            region,
            source: None,
            steps: vec![Step::Fill(fill)],
        }));
        Ok(value)
    }
}

/// Adds a step, unless it changes nothing or can be taken together with the last one.
pub(crate) fn push(piece: &mut Piece, step: Step) {
    let Some(source) = &piece.source else {
        return; // A constant is the same however it is turned.
    };
    let last = piece.steps.pop();
    match (last, step) {
        (Some(Step::Permute(first)), Step::Permute(then)) => {
            let order = then.iter().map(|&dim| first[dim]).collect();
            push(piece, Step::Permute(order));
        }
        (Some(Step::Reshape(_)), Step::Reshape(shape)) => push(piece, Step::Reshape(shape)),
        (last, step) => {
            piece.steps.extend(last);
            let idle = match &step {
                Step::Permute(order) => order.is_sorted(),
                Step::Reshape(shape) => {
                    *shape == narrow::extent_after(&source.region.extent, &piece.steps)
                }
                _ => false,
            };
            if !idle {
                piece.steps.push(step);
            }
        }
    }
}

/// Whether `next` begins where `last` ends along `dim`, in the tensor and in the source, so that the two are one box.
fn goes_on(last: &Piece, next: &Piece, dim: usize) -> bool {
    let (Some(source), Some(other)) = (&last.source, &next.source) else {
        return false;
    };
    let follows = |a: &Region, b: &Region, dim: usize| {
        (0..a.ndim()).all(|i| match i == dim {
            true => a.end(i) == b.offset[i],
            false => a.offset[i] == b.offset[i] && a.extent[i] == b.extent[i],
        })
    };
    source.name == other.name
        && last.steps == next.steps
        && follows(&last.region, &next.region, dim)
        && source_dim(&last.steps, dim)
            .is_some_and(|dim| follows(&source.region, &other.region, dim))
}

fn extend(last: &mut Piece, next: &Piece, dim: usize) {
    let more = next.region.extent[dim];
    last.region.extent[dim] += more;
    if let (Some(dim), Some(source)) = (source_dim(&last.steps, dim), &mut last.source) {
        source.region.extent[dim] += more;
    }
}

/// The dim of the source that becomes `dim`; `None` if the steps do more than turn and cast.
fn source_dim(steps: &[Step], mut dim: usize) -> Option<usize> {
    for step in steps.iter().rev() {
        match step {
            Step::Permute(order) => dim = order[dim],
            Step::Cast(_) => {}
            _ => return None,
        }
    }
    Some(dim)
}
