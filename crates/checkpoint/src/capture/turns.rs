//! Whose turn it is to change a tensor: what changes first is copied first, and its fence waits for nothing else.

use crate::bytes::Bytes;
use crate::state::{Outline, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The turn of each tensor of a state.
#[derive(Debug, Default)]
pub(crate) struct Turns(Option<(Arc<Outline>, Vec<u32>)>);

impl Turns {
    /// The turns of a state's tensors.
    pub(crate) fn of(state: &State) -> Self {
        let turns: Vec<u32> = state.memory.iter().map(Bytes::turn).collect();
        let differ = turns.iter().any(|turn| *turn != 0);
        Self(differ.then(|| (state.outline(), turns)))
    }

    /// The turn of the tensor called `name`.
    pub(crate) fn turn(&self, name: &str) -> u32 {
        let found = self.0.as_ref().and_then(|(outline, turns)| {
            let tensor = outline.find(name)?;
            turns.get(tensor).copied()
        });
        found.unwrap_or(0)
    }
}

/// The turns of memory that has several names with different ones, by its address.
#[derive(Debug, Default)]
pub(crate) struct Shared(BTreeMap<u64, BTreeSet<u32>>);

impl Shared {
    pub(super) fn find(bytes: &[Bytes]) -> Self {
        let mut turns: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        if bytes.iter().any(|bytes| bytes.turn() != 0) {
            for bytes in bytes {
                turns
                    .entry(bytes.address())
                    .or_default()
                    .insert(bytes.turn());
            }
            turns.retain(|_, turns| turns.len() > 1);
        }
        Self(turns)
    }

    /// The turns in which `bytes` may change.
    pub(super) fn turns(&self, bytes: &Bytes) -> BTreeSet<u32> {
        let shared = self.0.get(&bytes.address());
        shared.cloned().unwrap_or_else(|| [bytes.turn()].into())
    }
}

/// Chunks that fences wait for, and the turns whose fences may go once they are on their way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) chunks: Vec<usize>,
    pub(super) turns: BTreeSet<u32>,
}

/// Orders chunks, given with the turns of what is in each, by the first turn. `all` are the turns there are.
pub(super) fn batches(
    mut chunks: Vec<(usize, BTreeSet<u32>)>,
    all: impl IntoIterator<Item = u32>,
) -> Vec<Batch> {
    chunks.sort_by_key(|(index, turns)| (turns.first().copied(), *index));
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    for (position, (_, turns)) in chunks.iter().enumerate() {
        last.extend(turns.iter().map(|turn| (*turn, position)));
    }
    let free = all.into_iter().filter(|turn| !last.contains_key(turn));
    let mut batches = vec![Batch {
        chunks: Vec::new(),
        turns: free.collect(),
    }];
    let mut filled = Vec::new();
    for (position, (index, turns)) in chunks.into_iter().enumerate() {
        filled.push(index);
        let over: BTreeSet<u32> = turns
            .into_iter()
            .filter(|turn| last[turn] == position)
            .collect();
        if !over.is_empty() {
            batches.push(Batch {
                chunks: std::mem::take(&mut filled),
                turns: over,
            });
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    //! Small queues, written out.

    use super::*;

    fn batch(chunks: &[usize], turns: &[u32]) -> Batch {
        Batch {
            chunks: chunks.to_vec(),
            turns: turns.iter().copied().collect(),
        }
    }

    #[test]
    fn what_changes_first_is_copied_first() {
        let chunks = [(0, [2].into()), (1, [0, 2].into()), (2, [1].into())];
        let expected = [
            batch(&[], &[3]),
            batch(&[1], &[0]),
            batch(&[2], &[1]),
            batch(&[0], &[2]),
        ];
        assert_eq!(batches(chunks.to_vec(), 0..4), expected);
    }

    #[test]
    fn one_turn_is_one_batch_in_the_order_of_the_file() {
        let chunks: Vec<_> = (0..5).map(|index| (index, [0].into())).collect();
        assert_eq!(
            batches(chunks, [0]),
            [batch(&[], &[]), batch(&[0, 1, 2, 3, 4], &[0])]
        );
        assert_eq!(batches(Vec::new(), [0]), [batch(&[], &[0])]);
    }
}
