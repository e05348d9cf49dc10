//! Sums over the rows of a matrix, for the gradients of parameters that all rows share.

use crate::{Pool, Real};
use std::ops::Range;

/// How many columns a task takes.
const STRIP: usize = 128;

/// Adds to each element of `target` the sum of its column: `add` adds one row's terms of a range of columns. Rows are taken from first to last, so
/// the sums do not depend on the threads, which share the columns.
pub(crate) fn add_columns<R: Real>(
    pool: &Pool,
    rows: usize,
    target: &mut [R],
    add: impl Fn(usize, Range<usize>, &mut [R]) + Send + Sync,
) {
    pool.each(target.chunks_mut(STRIP).enumerate(), |(strip, target)| {
        let start = strip * STRIP;
        let mut sums = [R::ZERO; STRIP];
        let sums = &mut sums[..target.len()];
        for row in 0..rows {
            add(row, start..start + target.len(), sums);
        }
        for (target, &sum) in target.iter_mut().zip(&*sums) {
            *target += sum;
        }
    });
}
