//! Where the tokens of a step come from, and which of them are a rank's.

use crate::Error;
use cairn_model::{Batch, IGNORED};
use std::ops::Range;

/// Sequences by their place in the order of the run.
///
/// The place is one number, so that a run goes on with exactly the sequences it has not had, on any number of ranks. A closure will do.
pub trait Data: Send {
    /// The sequences at these places, all of one length.
    ///
    /// # Errors
    /// If there is something wrong with one of them.
    fn batch(
        &mut self,
        places: Range<u64>,
    ) -> Result<Batch, Box<dyn std::error::Error + Send + Sync>>;
}

impl<F, E> Data for F
where
    F: FnMut(Range<u64>) -> Result<Batch, E> + Send,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn batch(
        &mut self,
        places: Range<u64>,
    ) -> Result<Batch, Box<dyn std::error::Error + Send + Sync>> {
        self(places).map_err(Into::into)
    }
}

/// How the sequences of a step are shared out: equal parts for the ranks of the `dp` axis, each cut in equal micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// All sequences of a step.
    pub(crate) batch: usize,
    /// Which of the `dp` axis this rank is, and how many there are.
    pub(crate) dp: (usize, usize),
    /// How many micro-batches each takes.
    pub(crate) micro_batches: usize,
}

impl Shares {
    /// The places of this rank's micro-batches in a step that begins at `first`.
    pub(crate) fn places(self, first: u64) -> impl Iterator<Item = Range<u64>> {
        let (index, size) = self.dp;
        let each = (self.batch / size / self.micro_batches) as u64;
        let own = first + (self.batch / size * index) as u64;
        (0..self.micro_batches as u64).map(move |number| {
            let start = own + number * each;
            start..start + each
        })
    }

    /// This rank's micro-batches of a step that begins at `first`.
    pub(crate) fn batches(self, data: &mut dyn Data, first: u64) -> Result<Vec<Batch>, Error> {
        let places = self.places(first);
        places.map(|places| checked(data, places)).collect()
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
    let tokens = batch.sequences.saturating_mul(batch.length);
    let whole = [
        batch.tokens.len(),
        batch.targets.len(),
        batch.positions.len(),
        batch.documents.len(),
    ];
    let reason = match batch.sequences as u64 == count && batch.samples.len() as u64 == count {
        true if whole == [tokens; 4] => return Ok(batch),
        true => format!("fields of {whole:?} tokens instead of {tokens} each"),
        false => format!("{} sequences", batch.sequences),
    };
    Err(Error::Batch {
        first,
        last,
        reason,
    })
}

/// How many tokens of these count in the loss, and how many there are.
pub(crate) fn counts(batches: &[Batch]) -> [i64; 2] {
    let counted = |batch: &Batch| batch.targets.iter().filter(|t| **t != IGNORED).count();
    let each = batches
        .iter()
        .map(|batch| [counted(batch), batch.tokens.len()]);
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
            let of_rank = |index| Shares { batch, dp: (index, dp), micro_batches }.places(first);
            let taken: Vec<u64> = (0..dp).flat_map(of_rank).flatten().collect();
            let all: Vec<u64> = (first..first + batch as u64).collect();
            prop_assert_eq!(taken, all);
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
