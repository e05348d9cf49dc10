//! How ranks share out a bucket.

use crate::Bucket;
use cairn_sharding::chunk;
use std::ops::Range;

/// How the ranks of a group share out a bucket: each holds a flat part of every parameter, as `chunk` cuts it.
///
/// ```text
/// bucket     │ a0 a1 a2 │ b0 b1 b2 b3 │
/// shards     │ a0 a1 │ b0 b1 │   │ a2 │ b2 b3 │       of rank 0, of rank 1
/// ranked     │ a0 a1 b0 b1 │ a2 b2 b3 │              what a group reduces and gathers in one call
/// ```
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    slots: Vec<Range<usize>>,
    index: usize,
    counts: Vec<usize>,
}

/// The part of one parameter that a rank holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its elements in the bucket.
    pub(crate) whole: Range<usize>,
    /// Its elements in the shard of the rank.
    pub(crate) shard: Range<usize>,
}

impl Cut {
    /// The cut between `parts` ranks, of which this is `index`.
    pub(crate) fn new(bucket: &Bucket, parts: usize, index: usize) -> Self {
        let slots: Vec<_> = bucket
            .slots()
            .iter()
            .map(|slot| slot.range.clone())
            .collect();
        let count = |part| {
            let held = slots.iter().map(|slot| chunk(slot.len(), parts, part));
            held.map(|piece| piece.len()).sum()
        };
        let counts = (0..parts).map(count).collect();
        Self {
            slots,
            index,
            counts,
        }
    }

    /// Whether there is more than one part.
    pub(crate) fn is_shared(&self) -> bool {
        self.counts.len() > 1
    }

    /// How many elements each rank holds.
    pub(crate) fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// How many elements this rank holds.
    pub(crate) fn len(&self) -> usize {
        self.counts[self.index]
    }

    /// How many elements all hold.
    pub(crate) fn whole_len(&self) -> usize {
        self.counts.iter().sum()
    }

    /// What this rank holds, one piece for each parameter.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.pieces_of(self.index)
    }

    fn pieces_of(&self, part: usize) -> impl Iterator<Item = Piece> {
        let mut end = 0;
        self.slots.iter().map(move |slot| {
            let piece = chunk(slot.len(), self.counts.len(), part);
            let start = end;
            end += piece.len();
            Piece {
                whole: slot.start + piece.start..slot.start + piece.end,
                shard: start..end,
            }
        })
    }

    /// Where each piece of each rank lies in the bucket, and where if the shards of all ranks lie one after another.
    pub(crate) fn ranked(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let mut end = 0;
        (0..self.counts.len()).flat_map(move |part| {
            let start = end;
            end += self.counts[part];
            self.pieces_of(part).map(move |piece| {
                (
                    piece.whole,
                    start + piece.shard.start..start + piece.shard.end,
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    //! Every element of a bucket is in one place of one shard.

    use super::*;
    use crate::testing::bucket_of;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shards_hold_every_element_once(lens in prop::collection::vec(0usize..9, 0..5), parts in 1usize..6) {
            let bucket = bucket_of(&lens);
            let mut from = vec![0; bucket.len()];
            let mut to = vec![0; bucket.len()];
            for (whole, ranked) in Cut::new(&bucket, parts, 0).ranked() {
                prop_assert_eq!(whole.len(), ranked.len());
                from[whole].iter_mut().for_each(|times| *times += 1);
                to[ranked].iter_mut().for_each(|times| *times += 1);
            }
            prop_assert!(from.iter().chain(&to).all(|times| *times == 1));
            for index in 0..parts {
                let cut = Cut::new(&bucket, parts, index);
                prop_assert_eq!(cut.pieces().map(|piece| piece.shard.len()).sum::<usize>(), cut.len());
            }
        }
    }

    #[test]
    fn one_part_is_the_bucket_as_it_is() {
        let cut = Cut::new(&bucket_of(&[3, 0, 2]), 1, 0);
        assert!(cut.pieces().all(|piece| piece.whole == piece.shard));
        assert!(!cut.is_shared());
    }
}
