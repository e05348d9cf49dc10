//! Rows divided by their root mean square.

use crate::columns::add_columns;
use crate::pool::rows_per_task;
use crate::reduce::dot;
use crate::{Pool, Real};

/// Divides each row by its root mean square and multiplies it by a weight: `y = x / √(mean(x²) + ε) · w`.
#[derive(Debug, Clone, Copy)]
pub struct RmsNorm<'a, R> {
    /// One factor per column; its length is the width of the rows.
    pub weight: &'a [R],
    /// ε.
    pub epsilon: f64,
}

impl<R: Real> RmsNorm<'_, R> {
    /// `output[rows, width]` from `input[rows, width]`; `inverse[rows]` receives 1 / root mean square, for the backward.
    ///
    /// # Panics
    /// If the slices do not have the same rows.
    pub fn forward(&self, pool: &Pool, input: &[R], output: &mut [R], inverse: &mut [R]) {
        let width = self.weight.len().max(1);
        assert_eq!(input.len(), output.len());
        assert_eq!(input.len(), inverse.len() * self.weight.len());
        let rows = rows_per_task(width);
        let tasks = output
            .chunks_mut(rows * width)
            .zip(input.chunks(rows * width));
        pool.each(
            tasks.zip(inverse.chunks_mut(rows)),
            |((output, input), inverse)| {
                let rows = output.chunks_mut(width).zip(input.chunks(width));
                for ((output, input), inverse) in rows.zip(inverse) {
                    *inverse = self.inverse(input);
                    for ((output, &x), &weight) in output.iter_mut().zip(input).zip(self.weight) {
                        *output = x * *inverse * weight;
                    }
                }
            },
        );
    }

    fn inverse(&self, row: &[R]) -> R {
        let mean = dot(row, row) / R::from_f64(row.len() as f64);
        R::ONE / (mean + R::from_f64(self.epsilon)).sqrt()
    }

    /// `input_gradient[rows, width]` is written, `weight_gradient[width]` is added to.
    ///
    /// # Panics
    /// If the slices do not have the same rows.
    pub fn backward(
        &self,
        pool: &Pool,
        input: &[R],
        inverse: &[R],
        output_gradient: &[R],
        input_gradient: &mut [R],
        weight_gradient: &mut [R],
    ) {
        let width = self.weight.len().max(1);
        assert_eq!(input.len(), inverse.len() * self.weight.len());
        assert_eq!(input.len(), output_gradient.len());
        assert_eq!(input.len(), input_gradient.len());
        assert_eq!(weight_gradient.len(), self.weight.len());
        let rows = rows_per_task(width);
        let tasks = input_gradient.chunks_mut(rows * width).enumerate();
        pool.each(tasks, |(task, input_gradient)| {
            for (row, target) in input_gradient.chunks_mut(width).enumerate() {
                let row = task * rows + row;
                let range = row * width..(row + 1) * width;
                self.row_backward(
                    &input[range.clone()],
                    inverse[row],
                    &output_gradient[range],
                    target,
                );
            }
        });
        add_columns(
            pool,
            inverse.len(),
            weight_gradient,
            |row, columns, sums| {
                let input = &input[row * width..][columns.clone()];
                let gradient = &output_gradient[row * width..][columns];
                for ((sum, &x), &gradient) in sums.iter_mut().zip(input).zip(gradient) {
                    *sum += gradient * (x * inverse[row]);
                }
            },
        );
    }

    fn row_backward(&self, input: &[R], inverse: R, gradient: &[R], target: &mut [R]) {
        for ((target, &gradient), &weight) in target.iter_mut().zip(gradient).zip(self.weight) {
            *target = gradient * weight;
        }
        let along = dot(target, input) / R::from_f64(input.len() as f64) * inverse * inverse;
        for (target, &x) in target.iter_mut().zip(input) {
            *target = inverse * (*target - x * along);
        }
    }
}
