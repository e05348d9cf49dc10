//! Thins out by rank: the larger a change is among those of its lane, the likelier it stays.

use super::Kept;
use crate::Error;
use crate::methods::tasks::changes;
use crate::number::{Arithmetic, Real};
use crate::operands::{Block, Lanes, Operands};
use crate::passes::{BLOCK, map};
use crate::random::{Stream, threshold};
use crate::select::key;
use crate::vectors::vectorized;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lanes shorter than this are sorted by comparing.
const SHORT: usize = 64;

/// How the probability to stay rises in a lane.
pub(in crate::methods) struct Rise {
    pub(super) lanes: Lanes,
    /// The probability of the smallest.
    pub(super) lowest: f64,
    /// How much that of the largest is above it.
    pub(super) rise: f64,
}

impl Rise {
    /// Bytes of memory that ranking the lanes of a tensor takes.
    pub(in crate::methods) fn memory_bytes(
        lanes: Lanes,
        elements: usize,
        inputs: usize,
        threads: usize,
    ) -> usize {
        let mut groups = lanes.groups(elements, BLOCK);
        let at_once = threads.min(groups.len());
        let largest = groups.next().map_or(0, |group| group.len());
        // A key and three lists of places, a random number; as it is read and as a number for each input.
        let each = 4 * size_of::<u64>() + size_of::<u32>() + size_of::<f64>() * (inputs + 1);
        at_once * largest * each
    }

    fn probability(&self, rank: usize) -> f64 {
        match self.lanes.len {
            0 | 1 => self.lowest + self.rise / 2.0,
            len => self.lowest + self.rise * rank as f64 / (len - 1) as f64,
        }
    }

    /// Decides which elements stay.
    pub(super) fn mask<A: Arithmetic>(
        &self,
        operands: &Operands,
        task: usize,
    ) -> Result<Kept, Error> {
        // Short lanes are many, so what the ranks come to is worked out once.
        let known = if self.lanes.len <= BLOCK {
            self.lanes.len
        } else {
            0
        };
        let limit = |rank| threshold(self.probability(rank));
        let limits: Vec<u64> = (0..known).map(limit).collect();
        let words: Vec<AtomicU64> = (0..operands.elements.div_ceil(64))
            .map(|_| AtomicU64::new(0))
            .collect();
        self.each_group::<A, _>(operands, task, |first, ranks, numbers| {
            let stays = |(rank, number): (&usize, &u32)| {
                let limit = limits.get(*rank).copied();
                u64::from(*number) < limit.unwrap_or_else(|| threshold(self.probability(*rank)))
            };
            set_bits(&words, first, ranks.iter().zip(numbers).map(stays));
        })?;
        let words = words.into_iter().map(AtomicU64::into_inner);
        Ok(Kept::Mask(words.collect()))
    }

    /// Decides which elements stay, each divided by its probability.
    pub(super) fn factors<A: Arithmetic>(
        &self,
        operands: &Operands,
        task: usize,
    ) -> Result<Kept, Error> {
        let factors = self.each_group::<A, _>(operands, task, |_, ranks, numbers| {
            let factor = |(rank, number): (&usize, &u32)| {
                let probability = self.probability(*rank);
                let stays = u64::from(*number) < threshold(probability);
                if stays {
                    f32::of(1.0 / probability)
                } else {
                    0.0
                }
            };
            ranks.iter().zip(numbers).map(factor).collect::<Vec<f32>>()
        })?;
        Ok(Kept::Factors(factors.concat()))
    }

    /// Gives `take` the first element of each group of whole lanes, with the ranks and the random numbers of all.
    fn each_group<A: Arithmetic, T: Send>(
        &self,
        operands: &Operands,
        task: usize,
        take: impl Fn(usize, &[usize], &[u32]) -> T + Sync,
    ) -> Result<Vec<T>, Error> {
        let stream = Stream::new(operands.seed, &operands.name, task);
        let state = || (Block::<A>::new(), Ranking::default(), Vec::new());
        map(
            operands.threads,
            self.lanes.groups(operands.elements, BLOCK),
            state,
            |(block, ranking, numbers), elements| {
                let first = elements.start;
                let inputs = block.load(operands, elements.clone())?;
                numbers.resize(elements.len(), 0);
                ranking.keys.resize(elements.len(), 0);
                vectorized(
                    #[inline(always)]
                    || {
                        stream.fill(first, numbers);
                        let changes = changes::<A>(inputs, operands.has_base, task);
                        for (known, change) in ranking.keys.iter_mut().zip(changes) {
                            *known = key::<A>(change.abs());
                        }
                    },
                );
                Ok(take(first, ranking.rank(self.lanes, A::KEY_BITS), numbers))
            },
        )
    }
}

/// Sets the bits of the elements from `first` on that stay; a word may be shared with another thread.
fn set_bits(words: &[AtomicU64], first: usize, stays: impl Iterator<Item = bool>) {
    let (mut element, mut word) = (first, 0);
    for stays in stays {
        word |= u64::from(stays) << (element % 64);
        element += 1;
        if element.is_multiple_of(64) {
            words[element / 64 - 1].fetch_or(word, Ordering::Relaxed);
            word = 0;
        }
    }
    if word != 0 {
        words[element / 64].fetch_or(word, Ordering::Relaxed);
    }
}

/// Ranks elements by their keys, lane by lane.
#[derive(Default)]
struct Ranking {
    keys: Vec<u64>,
    order: Vec<usize>,
    scratch: Vec<usize>,
    ranks: Vec<usize>,
}

impl Ranking {
    /// The rank of each element in its lane; of equal ones the first is the smaller.
    fn rank(&mut self, lanes: Lanes, bits: u32) -> &[usize] {
        let elements = self.keys.len();
        self.ranks.resize(elements, 0);
        for start in (0..elements).step_by(lanes.stretch()) {
            for lane in start..start + lanes.stride {
                let places = (0..lanes.len).map(|step| lane + step * lanes.stride);
                self.order.clear();
                self.order.extend(places);
                self.sort(bits);
                for (rank, at) in self.order.iter().enumerate() {
                    self.ranks[*at] = rank;
                }
            }
        }
        &self.ranks
    }

    /// Sorts the places in `order` by their keys of `bits` bits, digit by digit from the lowest.
    fn sort(&mut self, bits: u32) {
        let Self { keys, order, .. } = self;
        if order.len() < SHORT {
            return order.sort_unstable_by_key(|at| (keys[*at], *at));
        }
        self.scratch.resize(order.len(), 0);
        for shift in (0..bits).step_by(8) {
            #[expect(clippy::cast_possible_truncation, reason = "a digit is 8 bits")]
            let digit = |at: usize| usize::from((keys[at] >> shift) as u8);
            let mut places = [0; 256];
            order.iter().for_each(|at| places[digit(*at)] += 1);
            if places.contains(&order.len()) {
                continue;
            }
            let mut next = 0;
            for place in &mut places {
                next += std::mem::replace(place, next);
            }
            for at in order.iter() {
                let place = &mut places[digit(*at)];
                self.scratch[*place] = *at;
                *place += 1;
            }
            std::mem::swap(order, &mut self.scratch);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Ranks against a stable sort.

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_are_those_of_a_stable_sort(
            bits in prop::sample::select(vec![16_u32, 32, 64]),
            // Many keys are equal, or differ in one digit only.
            keys in prop::collection::vec((0_u64..4, 0_u32..8), 1..400),
            stride in 1_usize..4,
        ) {
            let len = keys.len() / stride;
            let keys: Vec<u64> = keys[..len * stride]
                .iter()
                .map(|(digit, place)| digit << (8 * place % bits))
                .collect();
            let mut ranking = Ranking { keys: keys.clone(), ..Ranking::default() };
            let ranks = ranking.rank(Lanes { len, stride }, bits).to_vec();
            for lane in 0..if len == 0 { 0 } else { stride } {
                let mut places: Vec<usize> = (lane..keys.len()).step_by(stride).collect();
                places.sort_by_key(|at| keys[*at]);
                for (rank, at) in places.iter().enumerate() {
                    prop_assert_eq!(ranks[*at], rank);
                }
            }
        }
    }

    #[test]
    fn bits_that_share_a_word_are_all_set() {
        let words: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        set_bits(&words, 60, [true, false, true, true, true].into_iter());
        set_bits(&words, 65, (65..128).map(|at| at == 127));
        set_bits(&words, 128, [true].into_iter());
        let words: Vec<u64> = words.into_iter().map(AtomicU64::into_inner).collect();
        assert_eq!(words, [0b1101 << 60, 1 << 63 | 1, 1]);
    }
}
