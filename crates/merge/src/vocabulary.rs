//! Embeddings in the order of another vocabulary.

use crate::Error;
use crate::input::Input;
use crate::number::{Arithmetic, Real};
use std::ops::Range;
use std::sync::Arc;

/// Where a row of an embedding comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    /// This row of the model's own embedding.
    Own(usize),
    /// A row of another model's.
    Donor { donor: usize, row: usize },
    /// One of the rows that were worked out.
    Given(usize),
}

/// The rows of an embedding in the order of a new vocabulary.
pub(crate) struct Rows {
    pub(crate) width: usize,
    pub(crate) rows: Vec<Row>,
    pub(crate) donors: Vec<Arc<Input>>,
    pub(crate) given: Vec<Vec<f32>>,
}

impl Rows {
    /// Reads some elements of the reordered embedding of `own`.
    pub(crate) fn read<A: Arithmetic>(
        &self,
        own: &Input,
        elements: Range<usize>,
        bytes: &mut Vec<u8>,
        out: &mut [A::Real],
    ) -> Result<(), Error> {
        let mut at = elements.start;
        while at < elements.end {
            let (row, column) = (at / self.width, at % self.width);
            let len = self.run(row) * self.width - column;
            let len = len.min(elements.end - at);
            let target = &mut out[at - elements.start..][..len];
            let from = |row: usize| row * self.width + column..row * self.width + column + len;
            match self.rows[row] {
                Row::Own(row) => own.read_own::<A>(from(row), bytes, target)?,
                Row::Donor { donor, row } => {
                    self.donors[donor].read_own::<A>(from(row), bytes, target)?;
                }
                Row::Given(index) => {
                    for (value, given) in target.iter_mut().zip(&self.given[index][column..]) {
                        *value = A::Real::of(f64::from(*given));
                    }
                }
            }
            at += len;
        }
        Ok(())
    }

    /// How many rows from `row` on lie side by side in the model's own embedding, or 1.
    fn run(&self, row: usize) -> usize {
        let Row::Own(first) = self.rows[row] else {
            return 1;
        };
        let following = self.rows[row..].iter().enumerate();
        following
            .take_while(|(count, from)| **from == Row::Own(first + count))
            .count()
    }
}
