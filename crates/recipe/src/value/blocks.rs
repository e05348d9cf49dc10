//! Tensors whose elements share scales, block by block.

use super::narrow::{blocks_of, narrow};
use super::{Value, push};
use crate::compiled::{Operand, Piece, Step};
use crate::error::Problem;
use cairn_sharding::Region;
use cairn_tensor::DType;

impl Value {
    /// The elements times the scales of their blocks, in `F32`.
    pub(crate) fn dequant(&self, scales: &Self, block: &[usize]) -> Result<Self, Problem> {
        let dims = self.shape.iter().zip(block);
        let wanted: Vec<usize> = dims.map(|(len, block)| len.div_ceil(*block)).collect();
        if self.shape.len() != block.len() || scales.shape != wanted {
            return Err(Problem::Scales {
                shape: self.shape.clone(),
                block: block.to_vec(),
                scales: scales.shape.clone(),
            });
        }
        let mut value = Self {
            dtype: DType::F32,
            shape: self.shape.clone(),
            pieces: Vec::new(),
        };
        for piece in &self.pieces {
            for scale in &scales.pieces {
                let covered = covered(&scale.region, block, &self.shape);
                if let Some(shared) = piece.region.intersect(&covered) {
                    value.pieces.push(scaled(piece, scale, &shared, block)?);
                }
            }
            value.check_pieces()?;
        }
        Ok(value)
    }

    /// The elements divided by the scales of their blocks, and those scales.
    pub(crate) fn quant(&self, dtype: DType, block: &[usize]) -> Result<[Self; 2], Problem> {
        if self.shape.len() != block.len() {
            return Err(Problem::Blocks {
                shape: self.shape.clone(),
                block: block.to_vec(),
            });
        }
        let whole = |piece: &Piece| {
            piece.source.is_some()
                && (0..block.len()).all(|dim| {
                    let end = piece.region.end(dim);
                    piece.region.offset[dim].is_multiple_of(block[dim])
                        && (end.is_multiple_of(block[dim]) || end == self.shape[dim])
                })
        };
        if !self.pieces.iter().all(whole) {
            return Err(Problem::CutBlocks {
                block: block.to_vec(),
            });
        }
        let (mut values, mut scales) = (self.clone(), self.clone());
        values.dtype = dtype;
        scales.dtype = DType::F32;
        scales.shape = blocks_of(&vec![0; block.len()], &self.shape, block).extent;
        let block = block.to_vec();
        for piece in &mut values.pieces {
            let block = block.clone();
            push(piece, Step::Quant { dtype, block });
        }
        for piece in &mut scales.pieces {
            piece.region = blocks_of(&piece.region.offset, &piece.region.extent, &block);
            let block = block.clone();
            push(piece, Step::QuantScales { dtype, block });
        }
        Ok([values, scales])
    }

    /// The same bytes as elements of another type.
    pub(crate) fn reinterpret(&self, to: DType) -> Result<Self, Problem> {
        let from = self.dtype;
        let fits = |len: usize| {
            let bits = len.checked_mul(from.bits())?;
            bits.is_multiple_of(to.bits()).then_some(bits / to.bits())
        };
        let mut value = self.clone();
        value.dtype = to;
        let refuse = || Problem::Reinterpret { from, to };
        *value.shape.last_mut().ok_or_else(refuse)? = self
            .shape
            .last()
            .and_then(|len| fits(*len))
            .ok_or_else(refuse)?;
        for piece in &mut value.pieces {
            let last = piece.region.ndim() - 1;
            let (offset, extent) = (piece.region.offset[last], piece.region.extent[last]);
            let scaled = fits(offset).zip(fits(extent)).ok_or_else(refuse)?;
            if piece.source.is_none() {
                return Err(refuse());
            }
            piece.region = piece.region.with_dim(last, scaled.0, scaled.1);
            push(piece, Step::Reinterpret { from, to });
        }
        Ok(value)
    }
}

/// The elements of a tensor that these blocks are the scales of.
fn covered(blocks: &Region, block: &[usize], shape: &[usize]) -> Region {
    let mut region = blocks.clone();
    for dim in 0..block.len() {
        let start = blocks.offset[dim].saturating_mul(block[dim]);
        let end = blocks.end(dim).saturating_mul(block[dim]).min(shape[dim]);
        region.offset[dim] = start;
        region.extent[dim] = end - start;
    }
    region
}

/// The part of `piece` at `shared`, times the part of `scale` that belongs to it.
fn scaled(
    piece: &Piece,
    scale: &Piece,
    shared: &Region,
    block: &[usize],
) -> Result<Piece, Problem> {
    let mut part = narrow(piece, shared);
    let blocks = blocks_of(&shared.offset, &shared.extent, block);
    let scale = narrow(scale, &blocks);
    let (Some(_), Some(source)) = (&part.source, scale.source) else {
        return Err(Problem::CutBlocks {
            block: block.to_vec(),
        });
    };
    let phase = shared.offset.iter().zip(block);
    let step = Step::Dequant {
        scales: Operand {
            source,
            steps: scale.steps,
        },
        block: block.to_vec(),
        phase: phase.map(|(offset, block)| offset % block).collect(),
    };
    push(&mut part, step);
    Ok(part)
}
