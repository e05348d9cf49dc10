//! Rows with their mean taken away and divided by their deviation.

use crate::columns::add_columns;
use crate::pool::rows_per_task;
use crate::reduce::{sum, sum_pairs};
use crate::{Pool, Real};

/// Takes from each row its mean, divides it by its deviation, and applies a weight and a bias: `y = (x - mean) / √(variance + ε) · w + b`.
#[derive(Debug, Clone, Copy)]
pub struct LayerNorm<'a, R> {
    /// One factor per column; its length is the width of the rows.
    pub weight: &'a [R],
    /// One summand per column.
    pub bias: &'a [R],
    /// ε.
    pub epsilon: f64,
}

impl<R: Real> LayerNorm<'_, R> {
    /// `output[rows, width]` from `input[rows, width]`; `statistics[rows]` receives mean and 1 / deviation, for the backward.
    ///
    /// # Panics
    /// If the slices do not have the same rows.
    pub fn forward(&self, pool: &Pool, input: &[R], output: &mut [R], statistics: &mut [[R; 2]]) {
        let width = self.weight.len().max(1);
        assert_eq!(self.weight.len(), self.bias.len());
        assert_eq!(input.len(), output.len());
        assert_eq!(input.len(), statistics.len() * self.weight.len());
        let rows = rows_per_task(width);
        let tasks = output
            .chunks_mut(rows * width)
            .zip(input.chunks(rows * width));
        pool.each(
            tasks.zip(statistics.chunks_mut(rows)),
            |((output, input), statistics)| {
                let rows = output.chunks_mut(width).zip(input.chunks(width));
                for ((output, input), statistics) in rows.zip(statistics) {
                    *statistics = self.statistics(input);
                    let [mean, inverse] = *statistics;
                    let parameters = self.weight.iter().zip(self.bias);
                    for ((output, &x), (&weight, &bias)) in
                        output.iter_mut().zip(input).zip(parameters)
                    {
                        *output = (x - mean) * inverse * weight + bias;
                    }
                }
            },
        );
    }

    fn statistics(&self, row: &[R]) -> [R; 2] {
        let width = R::from_f64(row.len() as f64);
        let mean = sum(row, |x| x) / width;
        let variance = sum(row, |x| (x - mean) * (x - mean)) / width;
        [mean, R::ONE / (variance + R::from_f64(self.epsilon)).sqrt()]
    }

    /// `input_gradient[rows, width]` is written; the gradients of weight and bias are added to `parameter_gradients`.
    ///
    /// # Panics
    /// If the slices do not have the same rows.
    pub fn backward(
        &self,
        pool: &Pool,
        input: &[R],
        statistics: &[[R; 2]],
        output_gradient: &[R],
        input_gradient: &mut [R],
        parameter_gradients: [&mut [R]; 2],
    ) {
        let width = self.weight.len().max(1);
        assert_eq!(input.len(), statistics.len() * self.weight.len());
        assert_eq!(input.len(), output_gradient.len());
        assert_eq!(input.len(), input_gradient.len());
        let rows = rows_per_task(width);
        pool.each(
            input_gradient.chunks_mut(rows * width).enumerate(),
            |(task, input_gradient)| {
                for (row, target) in input_gradient.chunks_mut(width).enumerate() {
                    let row = task * rows + row;
                    let range = row * width..(row + 1) * width;
                    self.row_backward(
                        &input[range.clone()],
                        statistics[row],
                        &output_gradient[range],
                        target,
                    );
                }
            },
        );
        let [weight_gradient, bias_gradient] = parameter_gradients;
        assert_eq!(weight_gradient.len(), self.weight.len());
        assert_eq!(bias_gradient.len(), self.weight.len());
        add_columns(
            pool,
            statistics.len(),
            weight_gradient,
            |row, columns, sums| {
                let [mean, inverse] = statistics[row];
                let input = &input[row * width..][columns.clone()];
                let gradient = &output_gradient[row * width..][columns];
                for ((sum, &x), &gradient) in sums.iter_mut().zip(input).zip(gradient) {
                    *sum += gradient * ((x - mean) * inverse);
                }
            },
        );
        add_columns(
            pool,
            statistics.len(),
            bias_gradient,
            |row, columns, sums| {
                for (sum, &gradient) in sums
                    .iter_mut()
                    .zip(&output_gradient[row * width..][columns])
                {
                    *sum += gradient;
                }
            },
        );
    }

    fn row_backward(&self, input: &[R], [mean, inverse]: [R; 2], gradient: &[R], target: &mut [R]) {
        let width = R::from_f64(input.len() as f64);
        for ((target, &gradient), &weight) in target.iter_mut().zip(gradient).zip(self.weight) {
            *target = gradient * weight;
        }
        let level = sum(target, |gradient| gradient) / width;
        let along = sum_pairs(target, input, |gradient, x| gradient * (x - mean)) / width;
        let along = along * inverse * inverse;
        for (target, &x) in target.iter_mut().zip(input) {
            *target = inverse * ((*target - level) - (x - mean) * along);
        }
    }
}
