//! Looks at data without training.

use super::Trainer;
use crate::Error;
use crate::data::{Data, counts};
use crate::executor::Round;
use crate::report::Evaluation;
use cairn_collectives::{gather_values, numbers};
use cairn_tensor::ReduceOp;

impl Trainer {
    /// Looks at the first `batches` batches of `data` without training.
    ///
    /// # Collective
    /// # Errors
    /// If the data has something wrong, or a rank does not come along.
    pub fn evaluate(&mut self, data: &mut dyn Data, batches: u64) -> Result<Evaluation, Error> {
        let (mut losses, mut counted) = (Vec::new(), [0]);
        for number in 0..batches {
            let first = number * self.shares.batch as u64;
            let micro_batches = self.shares.batches(data, first)?;
            let round = Round {
                training: false,
                ..self.round(&micro_batches, 1)
            };
            let own = self.executor.evaluate(&mut self.arena, round)?;
            losses.extend(self.in_order(&own.concat())?);
            counted[0] += counts(&micro_batches)[0];
        }
        numbers::all_reduce(self.layout.dp.as_ref(), ReduceOp::Sum, &mut counted)?;
        let sum: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
        Ok(Evaluation {
            loss: sum / counted[0].max(1) as f64,
            tokens: counted[0].unsigned_abs(),
            losses,
        })
    }

    /// Everybody's losses of a batch in the order of the data. The ranks of `dp` have it in their order, and the last stage knows the losses.
    fn in_order(&self, own: &[f32]) -> Result<Vec<f32>, Error> {
        let world = self.layout.world.as_ref();
        let own = match self.layout.tp.rank() {
            0 => own,
            _ => &[],
        };
        let counts: Vec<usize> = gather_values(world, &own.len())?;
        let mut all = vec![0.0; counts.iter().sum()];
        numbers::all_gather(world, own, &counts, &mut all)?;
        Ok(all)
    }
}
