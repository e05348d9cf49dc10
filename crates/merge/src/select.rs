//! The element of any rank, found without sorting.
//!
//! Elements become whole numbers of the same order, their keys. One pass counts how often each value of the keys' top 16 bits
//! occurs, which tells the top bits of the key that has the rank; the next passes do the same for the bits below.

use crate::Error;
use crate::number::{Arithmetic, Real};
use crate::operands::{Block, Operands};
use crate::passes::{blocks, fold, map};

/// Bits that one pass settles.
const DIGIT_BITS: u32 = 16;

/// Fills the keys of one stream for a block of all inputs, whose first element is given.
pub(crate) type Keys<'a, A> =
    &'a (dyn Fn(&[Vec<<A as Arithmetic>::Real>], usize, usize, &mut Vec<u64>) + Sync);

/// Streams of keys over the elements of a tensor.
pub(crate) struct Streams<'a, A: Arithmetic> {
    /// Fills the keys: of the inputs, from an element on, of a stream, into a list.
    pub(crate) keys: Keys<'a, A>,
    /// The bits of a key.
    pub(crate) bits: u32,
}

/// The key of some rank, and its company.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub(crate) key: u64,
    /// How many keys are less.
    pub(crate) less: usize,
    /// How many are equal.
    pub(crate) equal: usize,
}

/// The key of a number in as many bits as an arithmetic needs.
#[inline]
pub(crate) fn key<A: Arithmetic>(value: A::Real) -> u64 {
    value.key() >> (A::Real::KEY_BITS - A::KEY_BITS)
}

/// For each `(stream, rank)` the key that has this rank, counted from the smallest, 0.
pub(crate) fn ranked<A: Arithmetic>(
    operands: &Operands,
    streams: &Streams<A>,
    wanted: &[(usize, usize)],
) -> Result<Vec<Ranked>, Error> {
    let mut found: Vec<Ranked> = vec![
        Ranked {
            key: 0,
            less: 0,
            equal: operands.elements,
        };
        wanted.len()
    ];
    for digit in (0..streams.bits / DIGIT_BITS).rev() {
        let shift = digit * DIGIT_BITS;
        let mut tables: Vec<(usize, u64)> = Vec::new();
        for ((stream, _), found) in wanted.iter().zip(&found) {
            if !tables.contains(&(*stream, found.key)) {
                tables.push((*stream, found.key));
            }
        }
        let counts = histograms(operands, streams, &tables, shift)?;
        for ((stream, rank), found) in wanted.iter().zip(&mut found) {
            let table = tables
                .iter()
                .position(|table| *table == (*stream, found.key));
            let counts = &counts[table.unwrap_or_default()];
            descend(found, counts, *rank);
        }
    }
    Ok(found)
}

/// Adds the digit at which `rank` lies to a key.
fn descend(found: &mut Ranked, counts: &[usize], rank: usize) {
    let mut less = found.less;
    for (digit, count) in counts.iter().enumerate() {
        if rank < less + count || digit + 1 == counts.len() {
            found.key = found.key << DIGIT_BITS | digit as u64;
            found.less = less;
            found.equal = *count;
            return;
        }
        less += count;
    }
}

/// For each `(stream, prefix)` how often each value of the digit at `shift` occurs below that prefix.
fn histograms<A: Arithmetic>(
    operands: &Operands,
    streams: &Streams<A>,
    tables: &[(usize, u64)],
    shift: u32,
) -> Result<Vec<Vec<usize>>, Error> {
    let empty = || vec![vec![0_usize; 1 << DIGIT_BITS]; tables.len()];
    let states = fold(
        operands.threads,
        blocks(operands.elements),
        || (Block::<A>::new(), Vec::new(), empty()),
        |(block, keys, counts), _, elements| {
            let first = elements.start;
            let values = block.load(operands, elements)?;
            let mut current = usize::MAX;
            for ((stream, prefix), counts) in tables.iter().zip(counts) {
                if current != *stream {
                    (streams.keys)(values, first, *stream, keys);
                    current = *stream;
                }
                for key in keys.iter() {
                    if key.checked_shr(shift + DIGIT_BITS).unwrap_or(0) == *prefix {
                        #[expect(clippy::cast_possible_truncation, reason = "16 bits are left")]
                        let digit = (key >> shift) as u16;
                        counts[usize::from(digit)] += 1;
                    }
                }
            }
            Ok(())
        },
    )?;
    let mut total = empty();
    for (_, _, counts) in states {
        for (total, counts) in total.iter_mut().zip(counts) {
            for (total, count) in total.iter_mut().zip(counts) {
                *total += count;
            }
        }
    }
    Ok(total)
}

/// For each `(stream, key, nth)` the place of the `nth` element, counted from 0, that has this key; the end if there are not so many.
pub(crate) fn places<A: Arithmetic>(
    operands: &Operands,
    streams: &Streams<A>,
    wanted: &[(usize, u64, usize)],
) -> Result<Vec<usize>, Error> {
    let state = || (Block::<A>::new(), Vec::new());
    let counts = map(
        operands.threads,
        blocks(operands.elements),
        state,
        |(block, keys), elements| {
            let first = elements.start;
            let values = block.load(operands, elements)?;
            let count = |(stream, key, _): &(usize, u64, usize)| {
                (streams.keys)(values, first, *stream, keys);
                keys.iter().filter(|known| *known == key).count()
            };
            Ok(wanted.iter().map(count).collect::<Vec<_>>())
        },
    )?;
    let (mut block, mut keys) = state();
    let mut places = Vec::new();
    for (index, (stream, key, nth)) in wanted.iter().enumerate() {
        let mut left = *nth;
        let mut place = operands.elements;
        for (counts, elements) in counts.iter().zip(blocks(operands.elements)) {
            if left < counts[index] {
                let first = elements.start;
                let values = block.load(operands, elements)?;
                (streams.keys)(values, first, *stream, &mut keys);
                let mut equal = keys.iter().enumerate().filter(|(_, known)| *known == key);
                place = equal.nth(left).map_or(place, |(at, _)| first + at);
                break;
            }
            left -= counts[index];
        }
        places.push(place);
    }
    Ok(places)
}
