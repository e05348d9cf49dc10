//! Flat buffers one after another, and the parameters that lie in them.

use crate::model::{Encoding, PieceAt, Tensor};
use cairn_sharding::{Piece, Region};
use cairn_tensor::{DType, element_count};
use std::ops::Range;

/// Elements side by side in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) dtype: DType,
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// Runs one after another, as if they were one vector. Where something was not kept there is a gap.
#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    /// Where each run begins.
    starts: Vec<usize>,
    runs: Vec<Run>,
    len: usize,
}

impl Stream {
    /// How many elements it has, gaps included.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds `len` elements: what the run has of them, and a gap for the rest.
    pub(super) fn push(&mut self, run: Option<Run>, len: usize) {
        if let Some(run) = run {
            self.starts.push(self.len);
            self.runs.push(Run {
                len: run.len.min(len),
                ..run
            });
        }
        self.len = self.len.saturating_add(len);
    }

    fn dtype(&self) -> Option<DType> {
        self.runs.first().map(|run| run.dtype)
    }

    /// The elements `range` as those from `first` on of a tensor of this shape; `None` if some are not here.
    fn pieces(
        &self,
        mut range: Range<usize>,
        shape: &[usize],
        mut first: usize,
    ) -> Option<Vec<PieceAt>> {
        let mut pieces = Vec::new();
        while !range.is_empty() {
            let index = self.starts.partition_point(|start| *start <= range.start);
            let index = index.checked_sub(1)?;
            let (start, run) = (self.starts[index], self.runs[index]);
            let skip = range.start - start;
            let len = run.len.checked_sub(skip)?.min(range.len());
            if len == 0 || Some(run.dtype) != self.dtype() {
                return None;
            }
            pieces.push(PieceAt {
                file: run.file,
                offset: run.offset + (skip * run.dtype.bits() / 8) as u64,
                piece: Piece {
                    region: Region::whole(shape),
                    flat: Some(first..first + len),
                },
                encoding: Encoding::RowMajor,
            });
            range.start += len;
            first += len;
        }
        Some(pieces)
    }
}

/// The length of the part of a parameter that each of `count` streams has.
pub(super) fn part_len(shape: &[usize], count: usize) -> usize {
    element_count(shape)
        .unwrap_or(usize::MAX)
        .div_ceil(count.max(1))
}

/// A tensor in equal parts, one from `start` on in each stream; `None` if some of its elements are not there.
pub(super) fn tensor(shape: &[usize], start: usize, streams: &[Stream]) -> Option<Tensor> {
    let count = element_count(shape)?;
    let part = part_len(shape, streams.len());
    let dtype = streams.first()?.dtype()?;
    let mut pieces = Vec::new();
    for (index, stream) in streams.iter().enumerate() {
        let first = part.checked_mul(index)?.min(count);
        let len = part.min(count - first);
        if len > 0 && stream.dtype() != Some(dtype) {
            return None;
        }
        pieces.extend(stream.pieces(start..start.checked_add(len)?, shape, first)?);
    }
    Some(Tensor {
        dtype,
        shape: shape.to_vec(),
        pieces,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(file: usize, len: usize) -> Option<Run> {
        Some(Run {
            dtype: DType::F32,
            file,
            offset: 0,
            len,
        })
    }

    #[test]
    fn what_was_not_kept_is_not_found() {
        let mut stream = Stream::default();
        stream.push(run(0, 3), 5);
        stream.push(None, 2);
        stream.push(run(1, 9), 4);
        let streams = [stream];
        assert!(tensor(&[3], 0, &streams).is_some());
        assert!(tensor(&[4], 0, &streams).is_none());
        assert!(tensor(&[1], 5, &streams).is_none());
        assert!(tensor(&[4], 7, &streams).is_some());
        assert!(
            tensor(&[5], 7, &streams).is_none(),
            "runs end where their place does"
        );
        assert!(tensor(&[1], usize::MAX, &streams).is_none());
    }

    proptest! {
        /// Every element of a tensor is found once, at the place it was dealt to.
        #[test]
        fn parts_make_up_the_tensor(rows in 1_usize..7, columns in 1_usize..7, ranks in 1_usize..5, start in 0_usize..9, cut in 1_usize..9) {
            let shape = [rows, columns];
            let part = part_len(&shape, ranks);
            let streams: Vec<Stream> = (0..ranks).map(|rank| {
                let mut stream = Stream::default();
                let mut left = start + part;
                while left > 0 {
                    let len = cut.min(left);
                    stream.push(Some(Run { dtype: DType::F32, file: rank, offset: 4 * (start + part - left) as u64, len }), len);
                    left -= len;
                }
                stream
            }).collect();
            let tensor = tensor(&shape, start, &streams).unwrap();
            let mut found = Vec::new();
            for at in &tensor.pieces {
                let flat = at.piece.flat.clone().unwrap();
                let place = usize::try_from(at.offset).unwrap() / 4;
                found.extend(flat.clone().map(|element| (element, at.file * part + place + element - flat.start - start)));
            }
            let expected: Vec<_> = (0..rows * columns).map(|element| (element, element)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
