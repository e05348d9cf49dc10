//! Samples of a run by their position, from one source or several.

use crate::{Error, Mixture, Order, Sample, Samples, State};
use cairn_random::{halves, philox};
use std::ops::Range;
use std::sync::Arc;

/// The position that no run reaches.
const MAX_POSITION: u64 = 1 << 63;
/// Keeps the seeds of sources apart from all other random numbers.
const PURPOSE: u32 = 0x0DA7_A100;

/// Samples with a name and a share of the run.
#[derive(Debug)]
pub struct Source {
    name: String,
    samples: Samples,
    weight: f64,
}

impl Source {
    /// A source whose share of the run is its weight among all weights.
    pub fn new(name: impl Into<String>, samples: Samples, weight: f64) -> Self {
        let name = name.into();
        Self {
            name,
            samples,
            weight,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its samples.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Its share of the run, against the weights of the others.
    pub fn weight(&self) -> f64 {
        self.weight
    }
}

/// The most that a batch of sequences of different lengths may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Tokens, counted with the padding that makes all sequences as long as the longest.
    pub tokens: usize,
    /// Sequences.
    pub samples: usize,
}

/// All samples of a run, by position.
///
/// The sample at a position is a function of the sources, the seed and the position. So a run that stopped after any number of samples goes on with the
/// next, on any number of ranks and with any batch; nothing is repeated and nothing skipped.
#[derive(Debug)]
pub struct Loader {
    sources: Vec<Source>,
    orders: Vec<Order>,
    mixture: Mixture,
}

impl Loader {
    /// Shuffles each source by the seed, or leaves it as it is without one.
    ///
    /// # Errors
    /// If there are no sources, or one has no samples or a weight that is not positive.
    pub fn new(sources: Vec<Source>, seed: Option<u64>) -> Result<Self, Error> {
        let mixture = Mixture::new(sources.iter().map(|source| (source.name(), source.weight)))?;
        let mut orders = Vec::with_capacity(sources.len());
        for (number, source) in (0..).zip(&sources) {
            if source.samples.count() == 0 {
                let name = source.name.clone();
                return Err(Error::Empty { name });
            }
            let seed = seed.map(|seed| seed_of(seed, number));
            orders.push(Order::new(source.samples.count(), seed)?);
        }
        Ok(Self {
            sources,
            orders,
            mixture,
        })
    }

    /// The sources, in the order given.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// How many samples all sources have together.
    pub fn count(&self) -> u64 {
        self.orders
            .iter()
            .map(Order::count)
            .fold(0, u64::saturating_add)
    }

    /// Reads the sample at a position of the run.
    ///
    /// # Errors
    /// If its documents cannot be read; the error names the file and the document.
    pub fn sample(&self, position: u64) -> Result<Sample, Error> {
        let (source, epoch, index) = self.find(position)?;
        Ok(Sample {
            position,
            source,
            epoch,
            ..self.sources[source].samples.get(index)?
        })
    }

    /// Reads the samples at some positions of the run.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn batch(&self, positions: Range<u64>) -> Result<Vec<Sample>, Error> {
        positions.map(|position| self.sample(position)).collect()
    }

    /// Reads batch after batch; the first error is the last item.
    pub fn batches<P>(
        self: Arc<Self>,
        positions: P,
    ) -> impl Iterator<Item = Result<Vec<Sample>, Error>> + use<P>
    where
        P: IntoIterator<Item = Range<u64>>,
    {
        let mut failed = false;
        positions.into_iter().map_while(move |positions| {
            let batch = (!failed).then(|| self.batch(positions))?;
            failed = batch.is_err();
            Some(batch)
        })
    }

    /// The positions of the batch that begins at `position` and fits the budget; at least one. The next batch begins where it ends.
    ///
    /// # Errors
    /// If the lengths of the samples cannot be read.
    pub fn fitting(&self, position: u64, budget: Budget) -> Result<Range<u64>, Error> {
        let mut longest = 0;
        let mut end = position;
        loop {
            let (source, _, index) = self.find(end)?;
            longest = longest.max(self.sources[source].samples.length_of(index)?);
            let samples = usize::try_from(end - position + 1).unwrap_or(usize::MAX);
            let fits =
                samples <= budget.samples && samples.saturating_mul(longest) <= budget.tokens;
            if end > position && !fits {
                return Ok(position..end);
            }
            end += 1;
        }
    }

    /// How often each source was gone through by the samples before `position`.
    pub fn epochs(&self, position: u64) -> Vec<u64> {
        let counts = self.mixture.counts(position);
        let whole = |(given, order): (u64, &Order)| given / order.count();
        counts.into_iter().zip(&self.orders).map(whole).collect()
    }

    /// Where a run stands that has trained on so many more samples and targets.
    pub fn advance(&self, state: State, samples: u64, tokens: u64) -> State {
        let consumed_samples = state.consumed_samples.saturating_add(samples);
        State {
            consumed_samples,
            consumed_tokens: state.consumed_tokens.saturating_add(tokens),
            epoch: self.epochs(consumed_samples).into_iter().min().unwrap_or(0),
        }
    }

    /// The source, its epoch and its sample at a position.
    fn find(&self, position: u64) -> Result<(usize, u64, u64), Error> {
        if position >= MAX_POSITION {
            return Err(Error::Limit {
                what: "the position of a sample",
                value: position,
                least: 0,
                most: MAX_POSITION - 1,
            });
        }
        let (source, given) = self.mixture.at(position);
        let (epoch, index) = self.orders[source].at(given);
        Ok((source, epoch, index))
    }
}

/// The seed of one of several sources.
fn seed_of(seed: u64, source: u32) -> u64 {
    let [low, high, _, _] = philox(halves(seed), [source, PURPOSE, 0, 0]);
    u64::from(high) << 32 | u64::from(low)
}

/// The part of some positions that is one rank's: all have as many, but the last ones fewer or none.
///
/// # Panics
/// If there are no ranks.
pub fn share(positions: Range<u64>, ranks: u64, rank: u64) -> Range<u64> {
    let count = positions.end.saturating_sub(positions.start);
    let each = count.div_ceil(ranks);
    let cut = |rank: u64| positions.start + rank.saturating_mul(each).min(count);
    cut(rank)..cut(rank.saturating_add(1))
}

#[cfg(test)]
mod tests;
