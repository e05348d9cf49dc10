//! Softmax of rows.

use crate::exponentials::exponentials;
use crate::pool::rows_per_task;
use crate::reduce::{dot, max};
use crate::{Pool, Real};
use pulp::Arch;

/// Replaces each row of `x[rows, width]` by its softmax.
pub fn forward<R: Real>(pool: &Pool, width: usize, x: &mut [R]) {
    let (width, arch) = (width.max(1), Arch::new());
    pool.each(x.chunks_mut(rows_per_task(width) * width), |rows| {
        for row in rows.chunks_mut(width) {
            let greatest = max(row);
            let share = R::ONE / exponentials(arch, row, R::ONE, greatest);
            row.iter_mut().for_each(|x| *x *= share);
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
