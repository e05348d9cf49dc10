//! What one peer hands to the others of a chunk it has read: the bytes each needs, packed, and the same bytes only once.

use crate::plan::{Chunk, FilePlan};
use std::ops::Range;

/// Stretches shorter than this on average are not worth listing: the whole chunk is handed over.
const MIN_STRETCH_BYTES: usize = 64;

/// Which bytes of a chunk a peer gets, in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Needed {
    /// All of it.
    Whole,
    /// These stretches, counted from the start of the chunk; they neither overlap nor touch.
    Stretches(Vec<Range<usize>>),
}

impl Needed {
    /// What the transfers of `plan` need of `chunk`. It depends on the bytes alone, not on how their targets lie in memory.
    pub(crate) fn of(plan: &FilePlan, chunk: &Chunk) -> Self {
        let begin = usize::try_from(chunk.offset).unwrap_or(usize::MAX);
        let range = begin..begin.saturating_add(chunk.len);
        let most = chunk.len / MIN_STRETCH_BYTES;
        let mut limit = 2 * most;
        let mut stretches: Vec<Range<usize>> = Vec::new();
        for transfer in chunk.transfers_in(plan, &range) {
            for run in transfer.runs.in_source(range.clone()) {
                let start = run.source - begin;
                match stretches.last_mut() {
                    Some(last) if last.end == start => last.end += run.len,
                    _ => stretches.push(start..start + run.len),
                }
                if stretches.len() > limit {
                    stretches = merged(stretches);
                    limit = limit.max(2 * stretches.len());
                }
            }
        }
        let stretches = merged(stretches);
        let is_all = stretches.first().is_some_and(|s| s.len() == chunk.len);
        match is_all || stretches.len() > most {
            true => Self::Whole,
            false => Self::Stretches(stretches),
        }
    }

    /// The bytes it takes, of a chunk of `chunk_len`.
    pub(crate) fn len(&self, chunk_len: usize) -> usize {
        match self {
            Self::Whole => chunk_len,
            Self::Stretches(stretches) => stretches.iter().map(Range::len).sum(),
        }
    }

    /// Copies what is needed of the chunk `bytes` to the end of `packed`.
    fn pack(&self, bytes: &[u8], packed: &mut Vec<u8>) {
        match self {
            Self::Whole => packed.extend_from_slice(bytes),
            Self::Stretches(stretches) => {
                let pieces = stretches.iter().map(|stretch| &bytes[stretch.clone()]);
                pieces.for_each(|piece| packed.extend_from_slice(piece));
            }
        }
    }

    /// Finds bytes of the chunk in what was packed of it.
    pub(crate) fn locator(&self) -> Locator<'_> {
        let stretches = match self {
            Self::Whole => &[],
            Self::Stretches(stretches) => stretches.as_slice(),
        };
        let mut packed = 0;
        let starts = stretches.iter().map(|stretch| {
            packed += stretch.len();
            packed - stretch.len()
        });
        Locator {
            starts: starts.collect(),
            stretches,
            last: 0,
        }
    }
}

/// Where bytes of a chunk lie in what was packed of it. It is fastest if asked in ascending order.
pub(crate) struct Locator<'a> {
    stretches: &'a [Range<usize>],
    starts: Vec<usize>,
    last: usize,
}

impl Locator<'_> {
    /// The place of byte `at` of the chunk. A chunk that was not packed lies as it is, and so does what was not asked for.
    pub(crate) fn find(&mut self, at: usize) -> usize {
        let holds = |index: usize| self.stretches.get(index).is_some_and(|s| s.contains(&at));
        let near = [self.last, self.last + 1];
        self.last = near
            .into_iter()
            .find(|index| holds(*index))
            .unwrap_or_else(|| {
                let after = self.stretches.partition_point(|s| s.start <= at);
                after.saturating_sub(1)
            });
        match self.stretches.get(self.last) {
            Some(stretch) => self.starts[self.last] + at.saturating_sub(stretch.start),
            None => at,
        }
    }
}

fn merged(mut stretches: Vec<Range<usize>>) -> Vec<Range<usize>> {
    if !stretches.is_sorted_by_key(|stretch| stretch.start) {
        stretches.sort_unstable_by_key(|stretch| stretch.start);
    }
    stretches.dedup_by(|next, last| {
        let meet = next.start <= last.end;
        if meet {
            last.end = last.end.max(next.end);
        }
        meet
    });
    stretches
}

/// The bytes for all peers that need something of a chunk, and which of them are for whom.
#[derive(Debug)]
pub(crate) struct Parcel {
    /// For each peer, where its bytes lie in the parcel.
    pub(crate) parts: Vec<(usize, Range<usize>)>,
    /// Whether every peer gets the whole chunk, which then need not be packed.
    pub(crate) whole: bool,
}

impl Parcel {
    /// Packs the chunk `bytes` for peers with these needs. What several need alike is packed once, and the parcel is never longer than
    /// the chunk: where needs differ but overlap much, all get the whole chunk.
    pub(crate) fn pack(needs: &[(usize, Needed)], bytes: &[u8], packed: &mut Vec<u8>) -> Self {
        packed.clear();
        let mut kinds: Vec<&Needed> = Vec::new();
        for (_, needed) in needs {
            if !kinds.contains(&needed) {
                kinds.push(needed);
            }
        }
        let total: usize = kinds.iter().map(|needed| needed.len(bytes.len())).sum();
        if total > bytes.len() || kinds.contains(&&Needed::Whole) {
            let all = |(peer, _): &(usize, Needed)| (*peer, 0..bytes.len());
            return Self {
                parts: needs.iter().map(all).collect(),
                whole: true,
            };
        }
        let mut parts = Vec::new();
        for kind in kinds {
            let begin = packed.len();
            kind.pack(bytes, packed);
            let takers = needs.iter().filter(|(_, needed)| needed == kind);
            parts.extend(takers.map(|(peer, _)| (*peer, begin..packed.len())));
        }
        Self {
            parts,
            whole: false,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Every byte of a parcel is looked up by everyone it is for, and compared with the chunk they came from.

    use super::*;

    fn stretches(bounds: &[(usize, usize)]) -> Needed {
        Needed::Stretches(bounds.iter().map(|(start, end)| *start..*end).collect())
    }

    /// Packs for peers 0, 1, …, unpacks for each, and returns the length of the parcel.
    fn round_trip(needs: &[Needed], chunk_len: usize) -> usize {
        let bytes: Vec<u8> = (1..=255).cycle().take(chunk_len).collect();
        let needs: Vec<(usize, Needed)> = needs.iter().cloned().enumerate().collect();
        let mut packed = vec![9; 3];
        let parcel = Parcel::pack(&needs, &bytes, &mut packed);
        assert_eq!(parcel.parts.len(), needs.len());
        if parcel.whole {
            packed.clone_from(&bytes);
        }
        for (peer, range) in parcel.parts {
            let needed = match parcel.whole {
                true => &Needed::Whole,
                false => &needs[peer].1,
            };
            let got = &packed[range];
            assert_eq!(got.len(), needed.len(chunk_len));
            let wanted = match &needs[peer].1 {
                Needed::Whole => (0..chunk_len).collect::<Vec<usize>>(),
                Needed::Stretches(wanted) => wanted.iter().cloned().flatten().collect(),
            };
            let (mut up, mut down) = (needed.locator(), needed.locator());
            for at in &wanted {
                assert_eq!(got[up.find(*at)], bytes[*at]);
            }
            for at in wanted.iter().rev() {
                assert_eq!(got[down.find(*at)], bytes[*at]);
            }
        }
        packed.len()
    }

    #[test]
    fn each_gets_what_it_needs_and_equal_needs_are_packed_once() {
        let (left, right) = (stretches(&[(0, 2), (4, 6)]), stretches(&[(2, 4), (6, 8)]));
        assert_eq!(round_trip(&[left.clone(), right.clone()], 8), 8);
        assert_eq!(round_trip(&[left.clone(), left.clone(), right], 8), 8);
        assert_eq!(round_trip(&[left], 8), 4);
        assert_eq!(round_trip(&[Needed::Whole, Needed::Whole], 8), 8);
        assert_eq!(round_trip(&[stretches(&[])], 8), 0);
        assert_eq!(round_trip(&[], 8), 0);
    }

    #[test]
    fn a_parcel_is_never_longer_than_the_chunk() {
        let needs = [
            stretches(&[(0, 7)]),
            stretches(&[(1, 8)]),
            stretches(&[(3, 4)]),
        ];
        assert_eq!(round_trip(&needs, 8), 8);
    }

    #[test]
    fn stretches_out_of_order_are_merged() {
        assert_eq!(merged(vec![4..6, 0..2, 2..3, 5..8, 0..1]), [0..3, 4..8]);
    }
}
