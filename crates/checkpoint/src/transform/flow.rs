//! One piece of a target, and where its elements lie.

use super::expression::{Expression, lies_in};
use super::view::{permuted, reshaped, unpermuted, unreshaped};
use super::{absolute, relative};
use crate::Error;
use crate::imagined::FileNumber;
use crate::source::{Source, StoredPiece, StoredTensor};
use cairn_recipe::{Piece as RecipePiece, Step};
use cairn_sharding::{LocalBox, Piece, Region};
use cairn_tensor::Strided;

/// A piece of a target and how its elements come about.
pub(super) struct Flow {
    /// The name of the target.
    pub(super) target: String,
    /// Where the piece lies in it.
    pub(super) region: Region,
    /// What it is made of.
    pub(super) made: Expression,
}

impl Flow {
    /// Checks a piece of the target `name`, which is a `target`, against the tensors of `base`.
    pub(super) fn new(
        name: &str,
        target: &StoredTensor,
        piece: &RecipePiece,
        base: &dyn Source,
    ) -> Result<Self, Error> {
        let made = Self::expression(target, piece, base).map_err(|reason| Error::State {
            name: name.to_string(),
            reason: format!("cannot be made as the recipe says: {reason}"),
        })?;
        Ok(Self {
            target: name.to_string(),
            region: piece.region.clone(),
            made,
        })
    }

    fn expression(
        target: &StoredTensor,
        piece: &RecipePiece,
        base: &dyn Source,
    ) -> Result<Expression, String> {
        let region = &piece.region;
        if !lies_in(region, &target.shape) {
            return Err(format!("`{region}` is not in {:?}", target.shape));
        }
        let wanted = StoredTensor {
            dtype: target.dtype,
            shape: region.extent.clone(),
        };
        let made = match &piece.source {
            Some(source) => Expression::new(source, &piece.steps, base)?,
            None => Expression::constant(wanted.clone(), &piece.steps)?,
        };
        let StoredTensor { dtype, shape } = made.result();
        if *made.result() != wanted {
            return Err(format!("the steps give {dtype}{shape:?} for `{region}`"));
        }
        Ok(made)
    }

    /// The region of the source that has every element that `region` of the target is made of; there must be a source, and
    /// nothing computed.
    pub(super) fn needed(&self, region: &Region) -> Region {
        let asked = self.region.intersect(region);
        let asked = asked.unwrap_or_else(|| self.region.clone());
        let mut asked = relative(&asked, &self.region.offset);
        for (index, step) in self.made.steps.iter().enumerate().rev() {
            let from = &self.made.stages[index].shape;
            asked = match step {
                Step::Permute(dims) => unpermuted(&asked, dims),
                Step::Reshape(to) => unreshaped(&asked, from, to),
                Step::Slice(slice) => absolute(&asked, &slice.offset),
                _ => asked,
            };
        }
        match &self.made.source {
            Some(source) => absolute(&asked, &source.region.offset),
            None => asked,
        }
    }

    /// Where `part`, a box of the source that lies in `stored`, is in the target; `None` if strides cannot say it.
    pub(super) fn lower(&self, part: LocalBox, stored: &StoredPiece) -> Option<Vec<StoredPiece>> {
        let origin = &self.made.source.as_ref()?.region.offset;
        let part = LocalBox {
            region: relative(&part.region, origin),
            local: part.local,
        };
        let file = FileNumber::Base(stored.file).encode();
        self.viewed(part, file, stored.offset)
    }

    /// Where the elements of an imagined file, which has what the computing steps give, are in the target.
    pub(super) fn lower_imagined(&self, file: usize) -> Option<Vec<StoredPiece>> {
        let shape = &self.made.stages[self.made.computing].shape;
        let whole = LocalBox {
            region: Region::whole(shape),
            local: Strided::contiguous(shape),
        };
        self.viewed(whole, file, 0)
    }

    /// Applies the views to a box of a file.
    fn viewed(&self, held: LocalBox, file: usize, offset: u64) -> Option<Vec<StoredPiece>> {
        let made = &self.made;
        let mut boxes = vec![held];
        for (index, step) in made.steps.iter().enumerate().skip(made.computing) {
            let from = &made.stages[index].shape;
            let mut viewed = Vec::with_capacity(boxes.len());
            for held in &boxes {
                match step {
                    Step::Permute(dims) => viewed.push(permuted(held, dims)),
                    Step::Reshape(to) => viewed.extend(reshaped(held, from, to)?),
                    Step::Slice(slice) => viewed.extend(sliced(held, slice)),
                    _ => return None,
                }
            }
            boxes = viewed;
        }
        let bits = made.result().dtype.bits();
        let piece = |held: LocalBox| {
            let offset_bits = held.local.offset.checked_mul(bits)?;
            let begin = offset_bits.is_multiple_of(8).then_some(offset_bits / 8)?;
            Some(StoredPiece {
                file,
                offset: offset.checked_add(begin as u64)?,
                piece: Piece::whole(absolute(&held.region, &self.region.offset)),
                strides: Some(held.local.strides),
            })
        };
        boxes.into_iter().map(piece).collect()
    }
}

/// The part of a box that lies in `slice`, counted from there.
fn sliced(held: &LocalBox, slice: &Region) -> Option<LocalBox> {
    let part = held.clip(slice)?;
    Some(LocalBox {
        region: relative(&part.region, &slice.offset),
        local: part.local,
    })
}
