//! Which blocks of a model a rank has.

use crate::Error;
use crate::settings::Parallel;
use cairn_plan::{LayerCosts, explicit_split, split_layers};
use std::ops::Range;

/// A run of blocks that a rank passes a micro-batch through at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Which part of the model it is.
    pub(crate) part: usize,
    /// Its blocks among those of the rank.
    pub(crate) blocks: Range<usize>,
}

/// The blocks of one stage of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Its chunks, in the order of the model.
    pub(crate) chunks: Vec<Chunk>,
    /// Its blocks among those of the model, in order.
    pub(crate) blocks: Vec<usize>,
    /// How many parts the model has.
    pub(crate) parts: usize,
}

impl Stage {
    /// Stage `index` of `stages`, of a model whose blocks cost this: chunk `c` is part `c · stages + index` of the model.
    pub(crate) fn new(
        (index, stages): (usize, usize),
        parallel: &Parallel,
        costs: &[f64],
    ) -> Result<Self, Error> {
        let parts = stages * parallel.chunks;
        let ranges = match &parallel.blocks {
            Some(counts) => explicit_split(costs.len(), counts)?,
            None => balanced(costs, parts)?,
        };
        let mut blocks = Vec::new();
        let chunks = (0..parallel.chunks).map(|chunk| {
            let part = chunk * stages + index;
            let start = blocks.len();
            blocks.extend(ranges[part].clone());
            Chunk {
                part,
                blocks: start..blocks.len(),
            }
        });
        Ok(Self {
            chunks: chunks.collect(),
            blocks,
            parts,
        })
    }
}

/// The blocks of each part. The first block and the last go with the layers beside them, or are a part of their own.
fn balanced(costs: &[f64], parts: usize) -> Result<Vec<Range<usize>>, Error> {
    let [embedding, layers @ .., head] = costs else {
        return Ok(explicit_split(costs.len(), &[costs.len()])?);
    };
    // Even one that costs nothing is something to do.
    let costs = LayerCosts {
        layers: layers.to_vec(),
        embedding: embedding.max(f64::MIN_POSITIVE),
        head: head.max(f64::MIN_POSITIVE),
    };
    let mut ranges = split_layers(&costs, parts)?;
    for range in &mut ranges {
        *range = range.start + 1..range.end + 1;
    }
    if let Some(first) = ranges.first_mut() {
        first.start = 0;
    }
    if let Some(last) = ranges.last_mut() {
        last.end = costs.layers.len() + 2;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_all_blocks_once_and_chunks_in_turn() {
        for (blocks, stages, chunks) in [(1, 1, 1), (2, 1, 1), (2, 2, 1), (4, 2, 2), (9, 3, 2)] {
            let mut seen = vec![None; blocks];
            for index in 0..stages {
                let parallel = Parallel {
                    chunks,
                    ..Parallel::default()
                };
                let costs = vec![1.0; blocks];
                let stage = Stage::new((index, stages), &parallel, &costs).unwrap();
                for chunk in &stage.chunks {
                    for block in &stage.blocks[chunk.blocks.clone()] {
                        assert_eq!(seen[*block].replace(chunk.part), None);
                    }
                }
            }
            let parts: Vec<usize> = seen.into_iter().map(|part| part.expect("taken")).collect();
            assert!(parts.is_sorted(), "{parts:?}");
        }
    }
}
