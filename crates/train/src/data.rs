//! Where the tokens of a step come from, and which of them are a rank's.

use crate::Error;
use cairn_data::Budget;
use cairn_model::{Batch, IGNORED};
use cairn_sharding::chunk;
use serde_json::Value;
use std::ops::Range;

/// What can be wrong with data.
type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Sequences by their place in the order of the run.
///
/// The place is one number, so that a run goes on with exactly the sequences it has not had, on any number of ranks. A closure will do. Sequences of coming
/// steps are read ahead, on a thread.
pub trait Data: Send {
    /// The sequences at these places, all of one length, if need be with padding.
    ///
    /// # Errors
    /// If there is something wrong with one of them.
    fn batch(&mut self, places: Range<u64>) -> Result<Batch, BoxedError>;

    /// The places of a step that begins at `first` and takes as many sequences as the budget allows, at least one. They depend on these alone.
    ///
    /// # Errors
    /// If the lengths of its sequences are not known.
    fn fitting(&mut self, _first: u64, _budget: Budget) -> Result<Range<u64>, BoxedError> {
        Err("it does not say how long its sequences are".into())
    }

    /// What decides which sequence is at which place: a run that goes on with something else is refused. None if that is not known.
    fn fingerprint(&self) -> Option<Value> {
        None
    }
}

impl<F, E> Data for F
where
    F: FnMut(Range<u64>) -> Result<Batch, E> + Send,
    E: Into<BoxedError>,
{
    fn batch(&mut self, places: Range<u64>) -> Result<Batch, BoxedError> {
        self(places).map_err(Into::into)
    }
}

/// How the sequences of a step are shared out: parts for the ranks of the `dp` axis, each cut in micro-batches. All are equal if the batch is a multiple
/// of their number; else those at the end may have fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// All sequences of a step, or the most that may fit its budget.
    pub(crate) batch: usize,
    /// The most tokens of a step, if that decides.
    pub(crate) tokens: Option<usize>,
    /// Which of the `dp` axis this rank is, and how many there are.
    pub(crate) dp: (usize, usize),
    /// How many micro-batches each takes.
    pub(crate) micro_batches: usize,
}

/// One rank's part of a step.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    /// The places of all sequences of all ranks.
    pub(crate) places: Range<u64>,
    /// The micro-batches of this rank.
    pub(crate) batches: Vec<Batch>,
}

impl Shares {
    /// This rank's part of the step that begins at `first`.
    pub(crate) fn step(self, data: &mut dyn Data, first: u64) -> Result<Step, Error> {
        let places = match self.tokens {
            None => first..first.saturating_add(self.batch as u64),
            Some(tokens) => {
                let samples = self.batch;
                let budget = Budget { tokens, samples };
                let fitting = data.fitting(first, budget);
                fitting.map_err(|source| Error::Data {
                    first,
                    last: first,
                    source,
                })?
            }
        };
        let own = self.own(places.clone());
        let batches = own.map(|places| match places.is_empty() {
            true => Ok(nothing(places.start)),
            false => checked(data, places),
        });
        Ok(Step {
            batches: batches.collect::<Result<_, _>>()?,
            places,
        })
    }

    /// The places of this rank's micro-batches among those of a step.
    fn own(self, step: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (index, size) = self.dp;
        let count = usize::try_from(step.end.saturating_sub(step.start)).unwrap_or(usize::MAX);
        (0..self.micro_batches).map(move |number| {
            let part = chunk(
                count,
                size * self.micro_batches,
                index * self.micro_batches + number,
            );
            step.start + part.start as u64..step.start + part.end as u64
        })
    }
}

/// A micro-batch for those who get no sequence: one token that counts for nothing.
fn nothing(place: u64) -> Batch {
    Batch {
        sequences: 1,
        length: 1,
        tokens: vec![0],
        targets: vec![IGNORED],
        positions: vec![0],
        documents: vec![0],
        samples: vec![place],
        lengths: vec![0],
        ..Batch::default()
    }
}

/// The sequences at these places, if they are as many and as long as they say.
fn checked(data: &mut dyn Data, places: Range<u64>) -> Result<Batch, Error> {
    let (first, last) = (places.start, places.end.saturating_sub(1));
    let count = places.end - places.start;
    let batch = data.batch(places).map_err(|source| Error::Data {
        first,
        last,
        source,
    })?;
    match contradiction(&batch, count) {
        None => Ok(batch),
        Some(reason) => Err(Error::Batch {
            first,
            last,
            reason,
        }),
    }
}

/// What of a batch does not fit `count` sequences.
fn contradiction(batch: &Batch, count: u64) -> Option<String> {
    let tokens = batch.sequences.saturating_mul(batch.length);
    let whole = [
        batch.tokens.len(),
        batch.targets.len(),
        batch.positions.len(),
        batch.documents.len(),
    ];
    if batch.sequences as u64 != count || batch.samples.len() as u64 != count {
        return Some(format!("{} sequences", batch.sequences));
    }
    if whole != [tokens; 4] {
        return Some(format!(
            "fields of {whole:?} tokens instead of {tokens} each"
        ));
    }
    let (lengths, length) = (&batch.lengths, batch.length);
    let fits = lengths.len() == batch.sequences && lengths.iter().all(|len| *len <= length);
    (!lengths.is_empty() && !fits).then(|| format!("lengths {lengths:?} of sequences of {length}"))
}

/// How many tokens each sequence has, padding left out.
pub(crate) fn lengths(batch: &Batch) -> Vec<usize> {
    match batch.lengths.is_empty() {
        true => vec![batch.length; batch.sequences],
        false => batch.lengths.clone(),
    }
}

/// The rows, as many for each token, of all tokens that are not padding.
pub(crate) fn without_padding(batch: &Batch, rows: Vec<f32>) -> Vec<f32> {
    if batch.lengths.is_empty() || rows.is_empty() {
        return rows;
    }
    let width = rows.len() / batch.tokens.len().max(1);
    let sequences = rows.chunks(width * batch.length).zip(&batch.lengths);
    sequences
        .flat_map(|(rows, length)| &rows[..width * length])
        .copied()
        .collect()
}

/// How many tokens of these count in the loss, and how many there are, padding left out.
pub(crate) fn counts(batches: &[Batch]) -> [i64; 2] {
    let counted = |batch: &Batch| batch.targets.iter().filter(|t| **t != IGNORED).count();
    let each = batches
        .iter()
        .map(|batch| [counted(batch), lengths(batch).iter().sum()]);
    each.fold([0; 2], |sum, one| {
        [sum[0] + one[0] as i64, sum[1] + one[1] as i64]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_sequence_of_a_step_is_taken_once(
            dp in 1..5_usize, micro_batches in 1..4_usize, each in 1..4_usize, first in 0..100_u64
        ) {
            let batch = dp * micro_batches * each;
            for batch in [batch, batch - 1] {
                let step = first..first + batch as u64;
                let of_rank = |index| Shares { batch, tokens: None, dp: (index, dp), micro_batches }.own(step.clone());
                let taken: Vec<u64> = (0..dp).flat_map(of_rank).flatten().collect();
                prop_assert_eq!(taken, step.clone().collect::<Vec<_>>());
            }
            let equal = Shares { batch, tokens: None, dp: (0, dp), micro_batches }.own(first..first + batch as u64);
            prop_assert!(equal.into_iter().all(|places| places.count() == each));
        }
    }

    #[test]
    fn data_that_gives_too_little_is_an_error() {
        let mut data = |_: Range<u64>| Ok::<_, String>(Batch::default());
        let error = checked(&mut data, 3..5).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the data gave 0 sequences for samples 3 to 4"
        );
    }
}
