//! Softmax of rows.

use crate::pool::rows_per_task;
use crate::reduce::{dot, max, sum};
use crate::{Pool, Real};

/// Replaces each row of `x[rows, width]` by its softmax.
pub fn forward<R: Real>(pool: &Pool, width: usize, x: &mut [R]) {
    let width = width.max(1);
    pool.each(x.chunks_mut(rows_per_task(width) * width), |rows| {
        for row in rows.chunks_mut(width) {
            let greatest = max(row);
            for x in row.iter_mut() {
                *x = (*x - greatest).exp();
            }
            let share = R::ONE / sum(row, |x| x);
            for x in row.iter_mut() {
                *x *= share;
            }
        }
    });
}

/// Replaces the gradient of a softmax `output[rows, width]` by the gradient of its input.
///
/// # Panics
/// If the slices differ in length.
pub fn backward<R: Real>(pool: &Pool, width: usize, output: &[R], gradient: &mut [R]) {
    assert_eq!(output.len(), gradient.len());
    let width = width.max(1);
    let block = rows_per_task(width) * width;
    let tasks = gradient.chunks_mut(block).zip(output.chunks(block));
    pool.each(tasks, |(gradient, output)| {
        for (gradient, output) in gradient.chunks_mut(width).zip(output.chunks(width)) {
            let mean = dot(gradient, output);
            for (gradient, &output) in gradient.iter_mut().zip(output) {
                *gradient = output * (*gradient - mean);
            }
        }
    });
}
