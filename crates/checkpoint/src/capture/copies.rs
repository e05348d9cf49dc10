//! Which bytes of which tensor go where in a file image.

use crate::Error;
use crate::assign::WriterItems;
use crate::image::Image;
use crate::layout::Layout;
use crate::overlap::overlaps;
use crate::state::{Outline, place};
use cairn_sharding::Piece;
use cairn_tensor::Runs;
use std::ops::Range;

/// Where one stretch of an image comes from: `runs` go from bytes of the stretch to bytes of the tensor's memory.
#[derive(Debug)]
pub(crate) struct Copy {
    /// Where the item begins in the image, and ends.
    begin: u64,
    end: u64,
    runs: Runs,
    /// Index of the tensor in the outline.
    pub(crate) tensor: usize,
}

/// A stretch of bytes on its way: from a tensor's memory to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    /// The first byte in the tensor's memory.
    pub(crate) source: usize,
    /// The first byte in the chunk.
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// How an image is filled, wherever the memory of the tensors is.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<Copy>);

impl Copies {
    /// Works out the copies from tensors of `outline` to the items of `writer`.
    pub(crate) fn plan(
        layout: &Layout,
        writer: &WriterItems,
        image: &Image,
        outline: &Outline,
    ) -> Result<Self, Error> {
        let mut copies = Self::default();
        for item in writer.items.iter().filter(|item| item.len_bytes > 0) {
            let tensor = outline.find(layout.name(item.tensor));
            let tensor = tensor.expect("the layout is the outline's");
            let begin = image.data_start() + item.offset;
            copies.add(outline, tensor, &item.piece, begin..begin + item.len_bytes)?;
        }
        Ok(copies)
    }

    /// Adds a piece of a tensor of `outline`, which lies in `range` of the image, behind what was added before.
    pub(crate) fn add(
        &mut self,
        outline: &Outline,
        tensor: usize,
        piece: &Piece,
        range: Range<u64>,
    ) -> Result<(), Error> {
        let held = &outline.tensors[tensor];
        let local_shape = held.spec.local_shape(outline.rank()).unwrap_or_default();
        let local_boxes = held.spec.local_boxes(outline.rank());
        for overlap in overlaps(&piece.boxes(), &local_boxes) {
            let memory = place(&overlap.target, &local_shape, held.strides.as_deref());
            let runs = Runs::between(held.spec.dtype(), &overlap.source, &memory);
            let runs = runs.map_err(|source| Error::Copy {
                name: outline.name(tensor).to_string(),
                source,
            })?;
            self.0.push(Copy {
                begin: range.start,
                end: range.end,
                runs,
                tensor,
            });
        }
        Ok(())
    }

    /// All of them, in the order of the image.
    pub(crate) fn all(&self) -> &[Copy] {
        &self.0
    }

    /// The copies that reach into a range of the image, with their numbers.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (usize, &Copy)> {
        let first = self.0.partition_point(|copy| copy.end <= range.start);
        let numbered = self.0.iter().enumerate().skip(first);
        numbered.take_while(move |(_, copy)| copy.begin < range.end)
    }
}

impl Copy {
    /// The bytes of the image it stands for.
    pub(crate) fn range(&self) -> Range<u64> {
        self.begin..self.end
    }

    /// How many bytes it brings.
    pub(crate) fn len(&self) -> usize {
        self.offset(self.end)
    }

    /// The part of the item that lies in `range` of the image, as bytes of the item.
    pub(crate) fn part(&self, range: &Range<u64>) -> Range<usize> {
        self.offset(range.start)..self.offset(range.end)
    }

    /// What goes into the chunk that is `range` of the image.
    pub(crate) fn moves(&self, range: Range<u64>) -> impl Iterator<Item = Move> {
        let (begin, part) = (self.begin, self.part(&range));
        self.runs.in_source(part).map(move |run| Move {
            source: run.target,
            at: usize::try_from(begin + run.source as u64 - range.start)
                .expect("clipped runs lie inside the chunk"),
            len: run.len,
        })
    }

    fn offset(&self, position: u64) -> usize {
        usize::try_from(position.clamp(self.begin, self.end) - self.begin)
            .expect("an item in memory has a length in memory")
    }
}
