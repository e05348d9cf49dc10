//! Rows and elements by index or by mask, and the gradients of picking and putting them.
//!
//! | forward | backward |
//! |---|---|
//! | [`gather`] | [`scatter_add`] of the gradient |
//! | [`scatter_add`] | [`gather`] of the gradient |
//! | [`index_put`] | [`index_put_backward`] |
//! | [`masked_fill`] | [`masked_fill`] of the gradient with zero |
//! | [`select`] | [`select_backward`] |
//!
//! Threads share the rows of the target, and each row takes its sources from first to last: sums have one order, and of several values put to one place
//! the last stays.

use crate::gemm::Write;
use crate::pool::{BLOCK, rows_per_task};
use crate::{Pool, Real};

/// `target[i] = source[indices[i]]` for rows of `width` elements.
///
/// # Panics
/// If an index is beyond the source, or the target has other rows.
pub fn gather<R: Real>(
    pool: &Pool,
    width: usize,
    source: &[R],
    indices: &[usize],
    target: &mut [R],
) {
    assert_eq!(target.len(), indices.len() * width);
    let rows = rows_per_task(width);
    let block = (rows * width).max(1);
    pool.each(
        target.chunks_mut(block).zip(indices.chunks(rows)),
        |(target, indices)| {
            for (row, &index) in target.chunks_mut(width).zip(indices) {
                row.copy_from_slice(&source[index * width..(index + 1) * width]);
            }
        },
    );
}

/// `target[indices[i]] += source[i]` for rows of `width` elements, in the order of `i`.
///
/// # Panics
/// If an index is beyond the target, or the source has other rows.
pub fn scatter_add<R: Real>(
    pool: &Pool,
    width: usize,
    indices: &[usize],
    source: &[R],
    target: &mut [R],
) {
    index_put(pool, width, indices, source, Write::Add, target);
}

/// `target[indices[i]] = values[i]` or `+= values[i]` for rows of `width` elements, in the order of `i`.
///
/// # Panics
/// If an index is beyond the target, or there are other rows of values.
pub fn index_put<R: Real>(
    pool: &Pool,
    width: usize,
    indices: &[usize],
    values: &[R],
    write: Write,
    target: &mut [R],
) {
    assert_eq!(values.len(), indices.len() * width);
    if width == 0 {
        return;
    }
    let rows = target.len() / width;
    assert!(
        indices.iter().all(|&index| index < rows),
        "an index is beyond the target"
    );
    let share = rows.div_ceil(pool.threads()).max(rows_per_task(width));
    pool.each(
        target.chunks_mut(share * width).enumerate(),
        |(task, target)| {
            for (&index, value) in indices.iter().zip(values.chunks(width)) {
                let start = index.checked_sub(task * share).map(|row| row * width);
                let Some(row) = start.and_then(|start| target.get_mut(start..start + width)) else {
                    continue;
                };
                match write {
                    Write::Replace => row.copy_from_slice(value),
                    Write::Add => row
                        .iter_mut()
                        .zip(value)
                        .for_each(|(row, &value)| *row += value),
                }
            }
        },
    );
}

/// The gradient of [`index_put`]: `gradient` becomes that of the old target, and that of the values is written.
///
/// # Panics
/// If an index is beyond the target, or there are other rows of values.
pub fn index_put_backward<R: Real>(
    pool: &Pool,
    width: usize,
    indices: &[usize],
    write: Write,
    gradient: &mut [R],
    value_gradient: &mut [R],
) {
    gather(pool, width, gradient, indices, value_gradient);
    if write == Write::Add || width == 0 {
        return;
    }
    // A value that a later one replaced has no part in the result. The gradient of a place is cleared when its last value is met.
    let mut met = vec![false; gradient.len() / width];
    for (&index, value) in indices.iter().zip(value_gradient.chunks_mut(width)).rev() {
        if met[index] {
            value.fill(R::ZERO);
        }
        met[index] = true;
        gradient[index * width..(index + 1) * width].fill(R::ZERO);
    }
}

/// Writes `value` to each element of `x` whose place in `mask` is true.
///
/// # Panics
/// If the slices differ in length.
pub fn masked_fill<R: Real>(pool: &Pool, mask: &[bool], value: R, x: &mut [R]) {
    assert_eq!(mask.len(), x.len());
    pool.each(x.chunks_mut(BLOCK).zip(mask.chunks(BLOCK)), |(x, mask)| {
        for (x, &mask) in x.iter_mut().zip(mask) {
            *x = if mask { value } else { *x };
        }
    });
}

/// The rows of `width` elements whose place in `mask` is true, one after another.
///
/// # Panics
/// If the source has other rows.
pub fn select<R: Real>(pool: &Pool, width: usize, mask: &[bool], source: &[R]) -> Vec<R> {
    assert_eq!(source.len(), mask.len() * width);
    let indices = places(mask);
    let mut target = vec![R::ZERO; indices.len() * width];
    gather(pool, width, source, &indices, &mut target);
    target
}

/// The gradient of the source of [`select`], written: the gradients of the selected rows, and zeros between.
///
/// # Panics
/// If the mask selects another number of rows, or the source has other rows.
pub fn select_backward<R: Real>(
    pool: &Pool,
    width: usize,
    mask: &[bool],
    gradient: &[R],
    source_gradient: &mut [R],
) {
    assert_eq!(source_gradient.len(), mask.len() * width);
    source_gradient.fill(R::ZERO);
    index_put(
        pool,
        width,
        &places(mask),
        gradient,
        Write::Replace,
        source_gradient,
    );
}

fn places(mask: &[bool]) -> Vec<usize> {
    let places = mask.iter().enumerate();
    places
        .filter_map(|(place, &set)| set.then_some(place))
        .collect()
}
