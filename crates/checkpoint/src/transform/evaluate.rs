//! Works out some elements of an expression from the boxes of the source that they need.

use super::blocks::{Blocks, bytes, floats};
use super::expression::Expression;
use super::view::{reshaped, unpermuted};
use super::{absolute, relative};
use crate::Error;
use crate::computed::read_piece;
use crate::source::Source;
use cairn_recipe::Step;
use cairn_sharding::{LocalBox, Piece, Region};
use cairn_tensor::{DType, Overflow, Runs, Strided, cast};
use std::ops::Range;

/// So many elements of any type fill whole bytes.
const WHOLE_BYTES: usize = 4;

/// The most elements that are worked out at once, or that scales are worked out of.
const MAX_ELEMENTS: usize = 4 << 20;

/// The most memory that working out the elements of tensors takes: each of a load's threads holds a few copies of them as `f32`.
pub const MAX_TRANSFORM_BUFFER_BYTES: usize = 4 * 4 * 4 * MAX_ELEMENTS;

/// An expression, the tensors it is of, and what messages call it.
#[derive(Clone, Copy)]
pub(super) struct Evaluation<'a> {
    pub(super) of: &'a Expression,
    pub(super) base: &'a dyn Source,
    pub(super) name: &'a str,
}

impl Evaluation<'_> {
    /// Fills `bytes` with `elements` of what the first `steps` give.
    pub(super) fn fill(
        &self,
        steps: usize,
        elements: Range<usize>,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let stage = &self.of.stages[steps];
        let rooms = bytes.chunks_mut(MAX_ELEMENTS * stage.dtype.bits() / 8);
        for (first, room) in elements.clone().step_by(MAX_ELEMENTS).zip(rooms) {
            let piece = Piece {
                region: Region::whole(&stage.shape),
                flat: Some(first..elements.end.min(first + MAX_ELEMENTS)),
            };
            room.copy_from_slice(&self.elements(steps, &piece)?);
        }
        Ok(())
    }

    /// A piece of what the first `steps` give, in row-major order.
    fn elements(&self, steps: usize, piece: &Piece) -> Result<Vec<u8>, Error> {
        let Some(before) = steps.checked_sub(1) else {
            return self.read(piece);
        };
        match &self.of.steps[before] {
            Step::Fill(value) => self.constant(*value, piece),
            // No matter how the piece is cut, elements stay in their order.
            Step::Cast(to) if self.of.stages[before].dtype.bits() >= 8 => {
                let source = self.elements(before, piece)?;
                self.cast(self.of.stages[before].dtype, *to, &source)
            }
            _ => {
                let mut target = self.room(steps, piece)?;
                for held in piece.boxes() {
                    self.fill_box(steps, &held, &mut target)?;
                }
                Ok(target)
            }
        }
    }

    /// Fills the place of a box in `target` with what the first `steps` give for it.
    fn fill_box(&self, steps: usize, held: &LocalBox, target: &mut [u8]) -> Result<(), Error> {
        let before = steps - 1;
        let shape = &self.of.stages[before].shape;
        let parts = match &self.of.steps[before] {
            Step::Permute(dims) => vec![unpermuted_box(held, dims)],
            Step::Reshape(to) => split_back(held, to, shape),
            Step::Slice(slice) => vec![LocalBox {
                region: absolute(&held.region, &slice.offset),
                local: held.local.clone(),
            }],
            step => {
                let (wide, source) = self.worked_out(steps, step, &held.region)?;
                let place = relative(&held.region, &wide.offset);
                let from = Strided::contiguous(&wide.extent).region(&place.offset, &place.extent);
                let from = from.expect("what is worked out has the box");
                return self.copy(steps, &source, &from, &held.local, target);
            }
        };
        for part in parts {
            let from = Strided::contiguous(&part.region.extent);
            let source = self.elements(before, &Piece::whole(part.region))?;
            self.copy(steps, &source, &from, &part.local, target)?;
        }
        Ok(())
    }

    /// What `step`, the last of `steps`, gives for a region that has `region` in it, and which region that is.
    fn worked_out(
        &self,
        steps: usize,
        step: &Step,
        region: &Region,
    ) -> Result<(Region, Vec<u8>), Error> {
        let before = steps - 1;
        let tensor = &self.of.stages[before];
        match step {
            Step::Reinterpret { from, to } => {
                let (behind, wide) = reinterpreted(region, *from, *to);
                Ok((wide, self.elements(before, &Piece::whole(behind))?))
            }
            Step::Dequant { block, phase, .. } => {
                let wide = in_whole_bytes(region, &tensor.shape, tensor.dtype);
                let mut values = self.floats(before, &wide)?;
                let first: Vec<usize> = wide.offset.iter().zip(phase).map(|(a, b)| a + b).collect();
                let blocks = Blocks {
                    extent: &wide.extent,
                    first: &first,
                    block,
                };
                let scales = Region {
                    offset: (0..wide.ndim()).map(|dim| blocks.met(dim).start).collect(),
                    extent: (0..wide.ndim()).map(|dim| blocks.met(dim).len()).collect(),
                };
                let operand = self.of.operands[before].as_ref().expect("checked");
                let operand = Evaluation {
                    of: operand,
                    ..*self
                };
                blocks.multiply(
                    &mut values,
                    &operand.floats(operand.of.steps.len(), &scales)?,
                );
                Ok((wide, bytes(&values)))
            }
            Step::Quant { dtype, block } => {
                let wide = in_blocks(region, &tensor.shape, block);
                let mut values = self.floats(before, &wide)?;
                let blocks = Blocks {
                    extent: &wide.extent,
                    first: &wide.offset,
                    block,
                };
                let scales = blocks.scales(&values, *dtype);
                blocks.divide(&mut values, &scales);
                let quantised = self.cast(DType::F32, *dtype, &bytes(&values))?;
                Ok((wide, quantised))
            }
            Step::QuantScales { dtype, block } => {
                let scales = self.scales(before, region, block, *dtype)?;
                Ok((region.clone(), scales))
            }
            // A cast from elements that are smaller than a byte; all else is done where it is met.
            _ => {
                let wide = in_whole_bytes(region, &tensor.shape, tensor.dtype);
                let source = self.elements(before, &Piece::whole(wide.clone()))?;
                let cast = self.cast(tensor.dtype, self.of.stages[steps].dtype, &source)?;
                Ok((wide, cast))
            }
        }
    }

    /// The scales of the blocks `region`, a few of them at a time.
    fn scales(
        &self,
        before: usize,
        region: &Region,
        block: &[usize],
        dtype: DType,
    ) -> Result<Vec<u8>, Error> {
        let shape = &self.of.stages[before].shape;
        let ends = (0..region.ndim()).map(|dim| (region.end(dim) * block[dim]).min(shape[dim]));
        let offset: Vec<usize> = region
            .offset
            .iter()
            .zip(block)
            .map(|(a, b)| a * b)
            .collect();
        let extent: Vec<usize> = ends
            .zip(&offset)
            .map(|(end, offset)| end - offset)
            .collect();
        let behind = Region { offset, extent };
        let dim = region.extent.iter().position(|extent| *extent > 1);
        if let Some(dim) = dim.filter(|_| behind.element_count() > MAX_ELEMENTS) {
            // Rows of scales lie one after another, and what is outside of them is a single one.
            let half = region.extent[dim] / 2;
            let (start, end) = (region.offset[dim], region.end(dim));
            let first = region.with_dim(dim, start, half);
            let second = region.with_dim(dim, start + half, end - start - half);
            let mut scales = self.scales(before, &first, block, dtype)?;
            scales.extend(self.scales(before, &second, block, dtype)?);
            return Ok(scales);
        }
        let values = self.floats(before, &behind)?;
        let blocks = Blocks {
            extent: &behind.extent,
            first: &behind.offset,
            block,
        };
        Ok(bytes(&blocks.scales(&values, dtype)))
    }

    /// A box of what the first `steps` give, as `f32`.
    fn floats(&self, steps: usize, region: &Region) -> Result<Vec<f32>, Error> {
        let source = self.elements(steps, &Piece::whole(region.clone()))?;
        let bytes = self.cast(self.of.stages[steps].dtype, DType::F32, &source)?;
        Ok(floats(&bytes))
    }

    /// Reads a piece of the source box.
    fn read(&self, piece: &Piece) -> Result<Vec<u8>, Error> {
        let Some(source) = &self.of.source else {
            return self.room(0, piece);
        };
        let piece = Piece {
            region: absolute(&piece.region, &source.region.offset),
            flat: piece.flat.clone(),
        };
        read_piece(self.base, &source.name, &self.of.tensor, &piece)
    }

    fn constant(&self, value: f64, piece: &Piece) -> Result<Vec<u8>, Error> {
        let mut target = self.room(0, piece)?;
        let few = value.to_le_bytes().repeat(WHOLE_BYTES);
        let few = self.cast(DType::F64, self.of.stages[0].dtype, &few)?;
        for (byte, of) in target.iter_mut().zip(few.iter().cycle()) {
            *byte = *of;
        }
        Ok(target)
    }

    fn cast(&self, from: DType, to: DType, source: &[u8]) -> Result<Vec<u8>, Error> {
        let elements = source.len() * 8 / from.bits();
        let mut target = vec![0; (elements * to.bits()).div_ceil(8)];
        let done = cast(from, to, source, &mut target, Overflow::Native);
        done.map_err(|source| self.failed(source))?;
        Ok(target)
    }

    fn copy(
        &self,
        steps: usize,
        source: &[u8],
        from: &Strided,
        to: &Strided,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let runs = Runs::between(self.of.stages[steps].dtype, from, to);
        let copied = runs.and_then(|runs| runs.copy(source, target));
        copied.map_err(|source| self.failed(source))
    }

    /// Room for a piece of what the first `steps` give.
    fn room(&self, steps: usize, piece: &Piece) -> Result<Vec<u8>, Error> {
        let dtype = self.of.stages[steps].dtype;
        let elements = piece.element_count();
        let len = dtype.len_bytes(elements);
        let len = len.ok_or(cairn_tensor::Error::PartialByte { dtype, elements });
        Ok(vec![0; len.map_err(|source| self.failed(source))?])
    }

    fn failed(&self, source: cairn_tensor::Error) -> Error {
        Error::Copy {
            name: self.name.to_string(),
            source,
        }
    }
}

/// The box that becomes `held` when dims are permuted.
fn unpermuted_box(held: &LocalBox, dims: &[usize]) -> LocalBox {
    let mut local = held.local.clone();
    for (dim, of) in dims.iter().enumerate() {
        local.shape[*of] = held.local.shape[dim];
        local.strides[*of] = held.local.strides[dim];
    }
    LocalBox {
        region: unpermuted(&held.region, dims),
        local,
    }
}

/// The boxes of a tensor of shape `before` that a box is of the same tensor reshaped to `shape`.
fn split_back(held: &LocalBox, shape: &[usize], before: &[usize]) -> Vec<LocalBox> {
    if let Some(parts) = reshaped(held, shape, before) {
        return parts;
    }
    let dim = held.region.extent.iter().position(|extent| *extent > 1);
    let dim = dim.expect("a single element is a stretch of one");
    let rows = held.region.offset[dim]..held.region.end(dim);
    let rows = rows.filter_map(|row| held.clip(&held.region.with_dim(dim, row, 1)));
    rows.flat_map(|row| split_back(&row, shape, before))
        .collect()
}

/// The region as elements of `from`, in whole ones, and what that is in elements of `to`.
fn reinterpreted(region: &Region, from: DType, to: DType) -> (Region, Region) {
    let last = region.ndim() - 1;
    let (was, is) = (from.bits(), to.bits());
    // Both ends lie between elements of either type.
    let unit = was / gcd(was, is);
    let begin = region.offset[last] / unit * unit;
    let end = region.end(last).next_multiple_of(unit);
    let at = |element: usize| element * is / was;
    let behind = region.with_dim(last, at(begin), at(end) - at(begin));
    (behind, region.with_dim(last, begin, end - begin))
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The region with its rows in whole bytes.
fn in_whole_bytes(region: &Region, shape: &[usize], dtype: DType) -> Region {
    match region.ndim().checked_sub(1) {
        Some(last) if dtype.bits() < 8 => {
            let begin = region.offset[last] / WHOLE_BYTES * WHOLE_BYTES;
            let end = region.end(last).next_multiple_of(WHOLE_BYTES);
            region.with_dim(last, begin, end.min(shape[last]) - begin)
        }
        _ => region.clone(),
    }
}

/// The region with every block it meets.
fn in_blocks(region: &Region, shape: &[usize], block: &[usize]) -> Region {
    (0..region.ndim()).fold(region.clone(), |wide, dim| {
        let begin = region.offset[dim] / block[dim] * block[dim];
        let end = region.end(dim).next_multiple_of(block[dim]).min(shape[dim]);
        wide.with_dim(dim, begin, end - begin)
    })
}
