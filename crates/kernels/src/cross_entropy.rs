//! The loss of predictions, in steps between which ranks that share the vocabulary talk.
//!
//! 1. [`row_max`](CrossEntropy::row_max); the ranks take the maximum.
//! 2. [`row_sums`](CrossEntropy::row_sums); the ranks add both results.
//! 3. [`losses`](CrossEntropy::losses), the same on every rank.
//! 4. [`gradient`](CrossEntropy::gradient), in place of the logits.
//!
//! Rows are independent, so a caller may take a few at a time and never hold the logits of all tokens.

use crate::exponentials::{exponentials, sum_of_exponentials};
use crate::pool::rows_per_task;
use crate::reduce::max;
use crate::{Pool, Real};
use pulp::Arch;

/// The part of the vocabulary that a rank has logits for, and how the loss is made of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossEntropy {
    /// The token of the first column.
    pub first: usize,
    /// How many columns there are.
    pub width: usize,
    /// The weight z of the term `z · log²Σexp`, which keeps logits from drifting; often 0.
    pub z_loss: f64,
}

impl CrossEntropy {
    /// The greatest logit of each row of `logits[rows, width]`, negative infinity if the width is 0.
    ///
    /// # Panics
    /// If the slices do not have the same rows.
    pub fn row_max<R: Real>(&self, pool: &Pool, logits: &[R], maxima: &mut [R]) {
        assert_eq!(logits.len(), maxima.len() * self.width);
        let rows = rows_per_task(self.width);
        pool.each(maxima.chunks_mut(rows).enumerate(), |(task, maxima)| {
            for (index, maximum) in maxima.iter_mut().enumerate() {
                *maximum = max(self.row(logits, task * rows + index));
            }
        });
    }

    /// For each row, the sum of `exp(logit - maximum)`, and the logit of its target, which is 0 if the target is in another rank's part.
    ///
    /// # Panics
    /// If the slices do not have the same rows.
    pub fn row_sums<R: Real>(
        &self,
        pool: &Pool,
        logits: &[R],
        targets: &[i64],
        maxima: &[R],
        sums: &mut [R],
        target_logits: &mut [R],
    ) {
        assert_eq!(logits.len(), targets.len() * self.width);
        assert_eq!(maxima.len(), targets.len());
        assert_eq!(sums.len(), targets.len());
        assert_eq!(target_logits.len(), targets.len());
        let rows = rows_per_task(self.width);
        let arch = Arch::new();
        let outputs = sums.chunks_mut(rows).zip(target_logits.chunks_mut(rows));
        pool.each(outputs.enumerate(), |(task, (sums, target_logits))| {
            for (index, (total, target_logit)) in sums.iter_mut().zip(target_logits).enumerate() {
                let index = task * rows + index;
                let row = self.row(logits, index);
                *total = sum_of_exponentials(arch, row, maxima[index]);
                *target_logit = self
                    .column(targets[index])
                    .map_or(R::ZERO, |column| row[column]);
            }
        });
    }

    /// The loss of each row, `logΣexp - target logit + z · log²Σexp`, or 0 where the target is negative. `sums` is replaced by `logΣexp`.
    ///
    /// # Panics
    /// If the slices do not have the same rows.
    pub fn losses<R: Real>(
        &self,
        targets: &[i64],
        maxima: &[R],
        target_logits: &[R],
        sums: &mut [R],
        losses: &mut [R],
    ) {
        assert_eq!(maxima.len(), targets.len());
        assert_eq!(target_logits.len(), targets.len());
        assert_eq!(sums.len(), targets.len());
        assert_eq!(losses.len(), targets.len());
        let z = R::from_f64(self.z_loss);
        for (index, &target) in targets.iter().enumerate() {
            let log_of_sum = sums[index].ln();
            let log_sum = maxima[index] + log_of_sum;
            sums[index] = log_sum;
            // Two large numbers are subtracted before a small one is added.
            let loss = (maxima[index] - target_logits[index]) + log_of_sum;
            losses[index] = match target {
                ..0 => R::ZERO,
                _ => loss + z * log_sum * log_sum,
            };
        }
    }

    /// Replaces each logit by the gradient of its row's loss times `loss_gradients`; zero in rows whose target is negative.
    ///
    /// # Panics
    /// If the slices do not have the same rows.
    pub fn gradient<R: Real>(
        &self,
        pool: &Pool,
        targets: &[i64],
        log_sums: &[R],
        loss_gradients: &[R],
        logits: &mut [R],
    ) {
        assert_eq!(logits.len(), targets.len() * self.width);
        assert_eq!(log_sums.len(), targets.len());
        assert_eq!(loss_gradients.len(), targets.len());
        let rows = rows_per_task(self.width);
        let width = self.width.max(1);
        let arch = Arch::new();
        let two_z = R::from_f64(2.0 * self.z_loss);
        pool.each(
            logits.chunks_mut(rows * width).enumerate(),
            |(task, logits)| {
                for (index, row) in logits.chunks_mut(width).enumerate() {
                    let index = task * rows + index;
                    if targets[index] < 0 {
                        row.fill(R::ZERO);
                        continue;
                    }
                    let (log_sum, gradient) = (log_sums[index], loss_gradients[index]);
                    let factor = gradient * (R::ONE + two_z * log_sum);
                    exponentials(arch, row, R::ONE, log_sum);
                    row.iter_mut().for_each(|share| *share *= factor);
                    if let Some(column) = self.column(targets[index]) {
                        row[column] -= gradient;
                    }
                }
            },
        );
    }

    fn row<'a, R>(&self, logits: &'a [R], index: usize) -> &'a [R] {
        &logits[index * self.width..(index + 1) * self.width]
    }

    /// The column of a target that lies in this part.
    fn column(&self, target: i64) -> Option<usize> {
        let column = usize::try_from(target).ok()?.checked_sub(self.first)?;
        (column < self.width).then_some(column)
    }
}
