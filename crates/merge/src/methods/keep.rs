//! Thins out a model's changes: which elements stay, and by how much what stays is scaled.

mod ranks;

use super::tasks::changes;
use crate::Error;
use crate::number::{Arithmetic, Real};
use crate::operands::{Lanes, Operands};
use crate::random::{Stream, threshold};
use crate::select::{Ranked, Streams, key, places, ranked};
use crate::vectors::vectorized;

pub(super) use ranks::Rise;

/// Random numbers drawn at once.
const DRAWN: usize = 256;

/// How a model's changes are thinned out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Thinning {
    /// Not at all.
    All,
    /// Nothing stays.
    Nothing,
    /// The largest share stays.
    Largest { density: f64 },
    /// A share stays, after a share `gamma` of the very largest has gone.
    Middle { density: f64, gamma: f64 },
    /// All from the quantile `1 - density` on stay.
    Quantile { density: f64 },
    /// Each stays with the same probability.
    Random { density: f64 },
    /// Each stays with a probability that grows with its rank, among those along dim 1, from `density - epsilon` to
    /// `density + epsilon`.
    Ranked { density: f64, epsilon: f64 },
    /// As `Ranked`, but over the whole tensor, by half of `epsilon`, and what stays is divided by its probability.
    RankedWhole { density: f64, epsilon: f64 },
}

/// How what stays is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rescale {
    No,
    /// So that the sum of magnitudes is what it was.
    Sum,
    /// By the inverse of the probability to stay.
    Probability,
}

/// Which elements stay.
pub(crate) enum Kept {
    All,
    Nothing,
    /// Keys above `key`, and of those equal to it the ones before element `until`.
    Above {
        key: u64,
        until: usize,
    },
    /// Pairs of key and element from the first on and before the second.
    Between(Option<(u64, usize)>, Option<(u64, usize)>),
    /// Those whose random number is below a limit.
    Random {
        stream: Stream,
        limit: u32,
    },
    /// Those whose bit is set.
    Mask(Vec<u64>),
    /// Each with a factor; zero if it goes.
    Factors(Vec<f32>),
}

impl Kept {
    /// Sets to zero what does not stay among `changes`, the elements from `first` on.
    #[inline(always)]
    pub(crate) fn apply<A: Arithmetic>(&self, first: usize, changes: &mut [A::Real]) {
        let zero = A::Real::default();
        let mut clear = |keep: &dyn Fn(usize, A::Real) -> bool| {
            for (at, change) in changes.iter_mut().enumerate() {
                if !keep(first + at, *change) {
                    *change = zero;
                }
            }
        };
        match self {
            Kept::All => {}
            Kept::Nothing => changes.fill(zero),
            Kept::Above { key: least, until } => {
                let (least, until) = (*least, *until);
                for (at, change) in changes.iter_mut().enumerate() {
                    let key = key::<A>(change.abs());
                    // Which way it goes cannot be foreseen, so there is no branch.
                    let stays = (key > least) | ((key == least) & (first + at < until));
                    *change = if stays { *change } else { zero };
                }
            }
            Kept::Between(low, high) => clear(&|at, change| {
                let place = (key::<A>(change.abs()), at);
                low.is_none_or(|low| place >= low) && high.is_none_or(|high| place < high)
            }),
            Kept::Random { stream, limit } => {
                let mut numbers = [0; DRAWN];
                for (index, changes) in changes.chunks_mut(DRAWN).enumerate() {
                    let numbers = &mut numbers[..changes.len()];
                    stream.fill(first + index * DRAWN, numbers);
                    for (change, number) in changes.iter_mut().zip(numbers) {
                        *change = if *number < *limit { *change } else { zero };
                    }
                }
            }
            Kept::Mask(words) => {
                let until_word = first.next_multiple_of(64) - first;
                let (head, rest) = changes.split_at_mut(until_word.min(changes.len()));
                let mask = |word: u64, changes: &mut [A::Real]| {
                    for (bit, change) in changes.iter_mut().enumerate() {
                        *change = if word >> bit & 1 == 1 { *change } else { zero };
                    }
                };
                if !head.is_empty() {
                    mask(words[first / 64] >> (first % 64), head);
                }
                let words = &words[first.div_ceil(64)..];
                for (changes, word) in rest.chunks_mut(64).zip(words) {
                    mask(*word, changes);
                }
            }
            Kept::Factors(factors) => {
                for (change, factor) in changes.iter_mut().zip(&factors[first..]) {
                    *change = A::round(*change * A::Real::of(f64::from(*factor)));
                }
            }
        }
    }
}

/// Decides for every task which elements stay.
pub(crate) fn keep<A: Arithmetic>(
    operands: &Operands,
    thinnings: &[Thinning],
) -> Result<Vec<Kept>, Error> {
    let mut kept = Vec::new();
    let selected = select::<A>(operands, thinnings)?;
    for ((task, thinning), selected) in thinnings.iter().enumerate().zip(selected) {
        kept.push(match (selected, *thinning) {
            (Some(selected), _) => selected,
            (None, Thinning::Nothing) => Kept::Nothing,
            (None, Thinning::Random { density }) => random(operands, task, density),
            (None, Thinning::Ranked { density, epsilon }) => {
                let rise = Rise {
                    lanes: Lanes::along(&operands.shape, 1),
                    lowest: density - epsilon,
                    rise: 2.0 * epsilon,
                };
                rise.mask::<A>(operands, task)?
            }
            (None, Thinning::RankedWhole { density, epsilon }) => {
                let rise = Rise {
                    lanes: Lanes::whole(operands.elements),
                    lowest: density - epsilon / 2.0,
                    rise: epsilon,
                };
                rise.factors::<A>(operands, task)?
            }
            (None, _) => Kept::All,
        });
    }
    Ok(kept)
}

/// What stays by magnitude, for the tasks that ask for it, all in the same passes.
fn select<A: Arithmetic>(
    operands: &Operands,
    thinnings: &[Thinning],
) -> Result<Vec<Option<Kept>>, Error> {
    let elements = operands.elements;
    let keys = |inputs: &[Vec<A::Real>], _: usize, task: usize, keys: &mut Vec<u64>| {
        keys.resize(inputs[0].len(), 0);
        vectorized(
            #[inline(always)]
            || {
                let changes = changes::<A>(inputs, operands.has_base, task);
                for (known, change) in keys.iter_mut().zip(changes) {
                    *known = key::<A>(change.abs());
                }
            },
        );
    };
    let streams = Streams::<A> {
        keys: &keys,
        bits: A::KEY_BITS,
    };
    let windows: Vec<Option<Window>> = thinnings
        .iter()
        .map(|thinning| Window::new(thinning, elements))
        .collect();
    let mut wanted = Vec::new();
    for (task, window) in windows.iter().enumerate() {
        wanted.extend(
            window
                .iter()
                .flat_map(Window::ranks)
                .map(|rank| (task, rank)),
        );
    }
    if wanted.is_empty() {
        return Ok(windows.iter().map(|_| None).collect());
    }
    let found = ranked(operands, &streams, &wanted)?;
    let ties: Vec<(usize, u64, usize)> = wanted
        .iter()
        .zip(&found)
        .map(|((task, rank), found)| {
            let window = windows[*task].as_ref();
            let nth = window.map_or(0, |window| window.tie(*rank, *found));
            (*task, found.key, nth)
        })
        .collect();
    // Where all equal elements share a fate, their places do not matter.
    let is_split =
        |((_, _, nth), found): (&(usize, u64, usize), &Ranked)| *nth < found.equal && *nth > 0;
    let places = match ties.iter().zip(&found).any(is_split) {
        true => places(operands, &streams, &ties)?,
        false => ties
            .iter()
            .zip(&found)
            .map(|((_, _, nth), _)| if *nth == 0 { 0 } else { elements })
            .collect(),
    };
    let mut cuts = found.iter().map(|found| found.key).zip(places);
    Ok(windows
        .iter()
        .map(|window| window.as_ref().map(|window| window.kept(&mut cuts)))
        .collect())
}

/// A range of ranks that stays.
enum Window {
    /// The `count` largest of `of`; of equal ones the first.
    Top { count: usize, of: usize },
    /// The one of this rank, and all that are not smaller.
    AtLeast { rank: usize },
    /// Ranks from `low` on and before `high`, the end if there is none; of equal elements the first is the smaller.
    Ranks { low: usize, high: Option<usize> },
}

impl Window {
    fn new(thinning: &Thinning, elements: usize) -> Option<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a number of elements"
        )]
        let share = |share: f64| ((share * elements as f64) as usize).min(elements);
        if elements == 0 {
            return None;
        }
        match *thinning {
            Thinning::Largest { density } => {
                let count = share(density).max(1);
                let of = elements;
                Some(Window::Top { count, of })
            }
            Thinning::Middle { density, gamma } => {
                let (target, top) = (share(density), share(gamma));
                let low = (elements - target).saturating_sub(top);
                let high = Some(low + target).filter(|high| *high < elements);
                Some(Window::Ranks { low, high })
            }
            Thinning::Quantile { density } => {
                let place = (1.0 - density) * (elements - 1) as f64;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a rank"
                )]
                let rank = (place.ceil().max(0.0) as usize).min(elements - 1);
                Some(Window::AtLeast { rank })
            }
            _ => None,
        }
    }

    fn ranks(&self) -> Vec<usize> {
        match self {
            Window::Top { count, of } => vec![of - count],
            Window::AtLeast { rank } => vec![*rank],
            Window::Ranks { low, high } => [*low].into_iter().chain(*high).collect(),
        }
    }

    /// How many of the elements equal to the one of rank `rank` lie before the place where the cut goes.
    fn tie(&self, rank: usize, found: Ranked) -> usize {
        let below = rank - found.less;
        match self {
            Window::Top { .. } => found.equal - below,
            Window::AtLeast { .. } => found.equal,
            Window::Ranks { .. } => below,
        }
    }

    fn kept(&self, cuts: &mut impl Iterator<Item = (u64, usize)>) -> Kept {
        let mut cut = || cuts.next().unwrap_or_default();
        match self {
            Window::Top { .. } | Window::AtLeast { .. } => {
                let (key, until) = cut();
                Kept::Above { key, until }
            }
            Window::Ranks { high, .. } => {
                let low = Some(cut());
                Kept::Between(low, high.map(|_| cut()))
            }
        }
    }
}

/// Every element with the same probability.
fn random(operands: &Operands, task: usize, density: f64) -> Kept {
    let stream = Stream::new(operands.seed, &operands.name, task);
    match u32::try_from(threshold(density)) {
        Ok(limit) => Kept::Random { stream, limit },
        Err(_) => Kept::All,
    }
}
