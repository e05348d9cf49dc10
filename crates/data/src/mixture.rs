//! Which of several sources gives the next sample.

use crate::Error;

/// The most sources of one mixture.
pub const MAX_SOURCES: usize = 1 << 12;

/// What the largest of weights that are no whole numbers becomes.
const SCALE: f64 = (1u64 << 40) as f64;
/// Whole weights up to this are taken as they are.
const MAX_WHOLE: f64 = (1u64 << 50) as f64;

/// Turns between sources by weight, in closed form.
///
/// Sources are split in two halves, each half again, and so on. Of the first k samples of a node, the left half gives `round(k · its share)` and the right half
/// the rest. So the source of a sample, and how many each has given before, follow from the number of the sample alone; no source is ever further from its share than
/// half a sample for each split above it, and after a whole number of rounds (10 samples for 1 : 2 : 7) all have given exactly theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mixture {
    /// The sums of the weights before each source, and of all.
    sums: Vec<u64>,
}

impl Mixture {
    /// Turns between sources of these names and weights.
    ///
    /// # Errors
    /// If a weight is not positive, or there are no sources or more than [`MAX_SOURCES`].
    pub fn new<'a>(sources: impl IntoIterator<Item = (&'a str, f64)>) -> Result<Self, Error> {
        let sources: Vec<(&str, f64)> = sources.into_iter().collect();
        if !(1..=MAX_SOURCES).contains(&sources.len()) {
            return Err(Error::Limit {
                what: "the number of sources",
                value: sources.len() as u64,
                least: 1,
                most: MAX_SOURCES as u64,
            });
        }
        for &(name, weight) in &sources {
            if !(weight > 0.0 && weight.is_finite()) {
                let name = name.to_owned();
                return Err(Error::Weight { name, weight });
            }
        }
        let largest = sources
            .iter()
            .fold(0.0, |most: f64, (_, weight)| most.max(*weight));
        let whole = |(_, weight): &(&str, f64)| weight.fract() == 0.0;
        let scale = match sources.iter().all(whole) && largest <= MAX_WHOLE {
            true => 1.0,
            false => SCALE / largest,
        };
        let mut sums = vec![0];
        for (_, weight) in sources {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most `MAX_WHOLE`"
            )]
            let weight = ((weight * scale).round() as u64).max(1);
            sums.push(sums[sums.len() - 1] + weight);
        }
        Ok(Self { sums })
    }

    /// The source of a sample, and how many samples it has given before.
    pub fn at(&self, position: u64) -> (usize, u64) {
        let (mut first, mut last, mut given) = (0, self.sums.len() - 1, position);
        while last - first > 1 {
            let middle = first + (last - first) / 2;
            let left = self.left(first, middle, last, given);
            if self.left(first, middle, last, given + 1) > left {
                (last, given) = (middle, left);
            } else {
                (first, given) = (middle, given - left);
            }
        }
        (first, given)
    }

    /// How many of the first `position` samples each source gives.
    pub fn counts(&self, position: u64) -> Vec<u64> {
        let mut counts = Vec::with_capacity(self.sums.len() - 1);
        self.count(0, self.sums.len() - 1, position, &mut counts);
        counts
    }

    fn count(&self, first: usize, last: usize, given: u64, counts: &mut Vec<u64>) {
        if last - first == 1 {
            return counts.push(given);
        }
        let middle = first + (last - first) / 2;
        let left = self.left(first, middle, last, given);
        self.count(first, middle, left, counts);
        self.count(middle, last, given - left, counts);
    }

    /// How many of the first `given` samples of the sources `first..last` those before `middle` give.
    fn left(&self, first: usize, middle: usize, last: usize, given: u64) -> u64 {
        let weight = |end: usize| u128::from(self.sums[end] - self.sums[first]);
        let (share, whole) = (weight(middle), weight(last));
        let rounded = (u128::from(given) * share * 2 + whole) / (whole * 2);
        u64::try_from(rounded).expect("a share is no more than the whole")
    }
}

#[cfg(test)]
mod tests;
