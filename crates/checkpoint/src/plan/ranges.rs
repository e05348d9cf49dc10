//! From copies to reads: which blocks of a file are needed, in requests of a good size.

use super::{FilePlan, Transfer};
use crate::checksum::BLOCK_BYTES;
use cairn_tensor::Runs;
use std::cmp::Reverse;
use std::ops::Range;

/// One read of a file and the copies it feeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// First byte, a multiple of the block size.
    pub(crate) offset: u64,
    /// At most [`CHUNK_BYTES`](crate::pool::CHUNK_BYTES).
    pub(crate) len: usize,
    /// Indices of the transfers that need bytes of it.
    pub(crate) transfers: Vec<usize>,
}

impl Chunk {
    /// The transfers that may need bytes in `range` of the file.
    pub(crate) fn transfers_in<'a>(
        &self,
        plan: &'a FilePlan,
        range: &Range<usize>,
    ) -> Vec<&'a Transfer> {
        let transfers = self.transfers.iter().map(|index| &plan.transfers[*index]);
        transfers
            .filter(|transfer| {
                transfer.runs.source_offset < range.end && range.start < transfer.source_end
            })
            .collect()
    }

    /// Cuts `span` of a file into chunks of at most `len` bytes that no transfer meets yet.
    pub(crate) fn cut(span: &Range<usize>, len: usize) -> impl Iterator<Item = Chunk> {
        let end = span.end;
        span.clone().step_by(len).map(move |offset| Chunk {
            offset: offset as u64,
            len: len.min(end - offset),
            transfers: Vec::new(),
        })
    }
}

/// Cuts everything the transfers need of a file of `file_len` bytes into reads of whole blocks, in file order. Stretches that lie at most
/// `gap_bytes` apart are read as one, and none is longer than `len`.
pub(super) fn cut(transfers: &[Transfer], file_len: u64, gap_bytes: u64, len: usize) -> Vec<Chunk> {
    let spans = joined(blocks(transfers, file_len), gap_bytes);
    let cut = spans.iter().flat_map(|span| Chunk::cut(span, len));
    cut.collect()
}

/// The blocks that the transfers touch, as stretches in file order.
pub(super) fn blocks(transfers: &[Transfer], file_len: u64) -> Vec<Range<usize>> {
    let file_len = usize::try_from(file_len).unwrap_or(usize::MAX);
    merged(transfers, |span| {
        let begin = span.start / BLOCK_BYTES * BLOCK_BYTES;
        begin..span.end.next_multiple_of(BLOCK_BYTES).min(file_len)
    })
}

/// The bytes between the first and last byte of every dense stretch the transfers need, each counted once.
pub(super) fn span_bytes(transfers: &[Transfer]) -> u64 {
    let spans = merged(transfers, |span| span);
    spans.iter().map(|span| span.len() as u64).sum()
}

fn merged(
    transfers: &[Transfer],
    round: impl Fn(Range<usize>) -> Range<usize>,
) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = transfers
        .iter()
        .flat_map(|transfer| spans(&transfer.runs))
        .map(round)
        .collect();
    all.sort_unstable_by_key(|span| (span.start, span.end));
    joined(all, 0)
}

/// Joins sorted stretches that overlap, touch, or lie at most `gap_bytes` apart.
fn joined(spans: Vec<Range<usize>>, gap_bytes: u64) -> Vec<Range<usize>> {
    let gap = usize::try_from(gap_bytes).unwrap_or(usize::MAX);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end.saturating_add(gap) => {
                last.end = last.end.max(span.end);
            }
            _ => joined.push(span),
        }
    }
    joined
}

/// The stretches of source bytes a copy touches; runs less than a block apart count as one stretch.
fn spans(runs: &Runs) -> Vec<Range<usize>> {
    let mut extent = runs.run_bytes;
    // Loops follow the target; what is touched of the source does not depend on their order.
    let mut loops = runs.loops.clone();
    loops.sort_by_key(|level| Reverse(level.source_stride));
    let mut outer = loops.as_slice();
    while let Some((inner, rest)) = outer.split_last() {
        if inner.source_stride > extent.saturating_add(BLOCK_BYTES) {
            break;
        }
        extent += (inner.count - 1) * inner.source_stride;
        outer = rest;
    }
    let mut starts = vec![runs.source_offset];
    for level in outer {
        starts = starts
            .iter()
            .flat_map(|start| (0..level.count).map(move |i| start + i * level.source_stride))
            .collect();
    }
    starts
        .into_iter()
        .map(|start| start..start + extent)
        .collect()
}

/// Notes for every chunk which transfers meet it.
pub(super) fn attach(transfers: &[Transfer], chunks: &mut [Chunk]) {
    for (index, transfer) in transfers.iter().enumerate() {
        for span in spans(&transfer.runs) {
            let first = chunks
                .partition_point(|chunk| chunk.offset + chunk.len as u64 <= span.start as u64);
            for chunk in &mut chunks[first..] {
                if chunk.offset >= span.end as u64 {
                    break;
                }
                if chunk.transfers.last() != Some(&index) {
                    chunk.transfers.push(index);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Reads cover what is needed, are made of whole blocks, and merge.

    use super::*;
    use crate::pool::CHUNK_BYTES;
    use cairn_tensor::{DType, Strided};

    fn chunks(transfers: &[Transfer], file_len: u64, gap_bytes: u64) -> Vec<Chunk> {
        let mut chunks = cut(transfers, file_len, gap_bytes, CHUNK_BYTES);
        attach(transfers, &mut chunks);
        chunks
    }

    fn columns(rows: usize, width: usize, from: usize, count: usize) -> Transfer {
        let source = Strided::contiguous(&[rows, width])
            .region(&[0, from], &[rows, count])
            .unwrap();
        let target = Strided::contiguous(&[rows, count]);
        Transfer::new(0, Runs::between(DType::U8, &source, &target).unwrap())
    }

    #[test]
    fn far_rows_are_read_alone_and_near_ones_together() {
        let far = columns(3, 10 * BLOCK_BYTES, 5, 10);
        let reads = chunks(std::slice::from_ref(&far), 30 * BLOCK_BYTES as u64, 0);
        let offsets: Vec<u64> = reads.iter().map(|chunk| chunk.offset).collect();
        assert_eq!(
            offsets,
            [0, 10 * BLOCK_BYTES as u64, 20 * BLOCK_BYTES as u64]
        );
        assert!(reads.iter().all(|chunk| chunk.len == BLOCK_BYTES));
        let gap = 9 * BLOCK_BYTES as u64;
        assert_eq!(
            chunks(std::slice::from_ref(&far), 30 * BLOCK_BYTES as u64, gap - 1).len(),
            3
        );
        let reads = chunks(&[far], 30 * BLOCK_BYTES as u64, gap);
        assert_eq!(reads.len(), 1, "a store where that costs less reads it all");
        let near = columns(100, 1000, 5, 10);
        let reads = chunks(&[near], 100_000, 0);
        assert_eq!(reads.len(), 1);
        assert_eq!(reads[0].len, 100_000);
    }

    #[test]
    fn two_transfers_share_the_read_of_their_block() {
        let (left, right) = (columns(10, 100, 0, 50), columns(10, 100, 50, 50));
        let reads = chunks(&[left.clone(), right.clone()], 1000, 0);
        assert_eq!(reads.len(), 1);
        assert_eq!(reads[0].transfers, [0, 1]);
        assert_eq!(span_bytes(&[left, right]), 1000);
    }

    #[test]
    fn long_stretches_are_cut_into_chunks() {
        let all = columns(3, CHUNK_BYTES, 0, CHUNK_BYTES);
        let reads = chunks(&[all], 3 * CHUNK_BYTES as u64, 0);
        assert_eq!(reads.len(), 3);
        assert!(reads.iter().all(|chunk| chunk.transfers == [0]));
    }
}
