//! Carrying a copy out: over one thread or several, with loops made for the length of the runs.

use std::num::NonZero;
use std::thread;

use super::{Loop, Runs};
use crate::Error;

/// A copy of at least this many bytes is split over threads: it takes about a millisecond on one,
/// and starting another takes some 30 µs.
pub const PARALLEL_THRESHOLD: usize = 8 << 20;

/// Loops that cross each other are walked in square tiles of this many iterations, so that both
/// sides stay in cache.
const TILE: usize = 64;

impl Runs {
    /// Copies every run from `source` to `target`.
    ///
    /// # Errors
    ///
    /// If a run lies outside its buffer; nothing is written then.
    pub fn copy(&self, source: &[u8], target: &mut [u8]) -> Result<(), Error> {
        if self.run_count() == 0 {
            return Ok(());
        }
        check_end(
            "source",
            self.source_offset,
            self.span(|each| each.source_stride),
            source,
        )?;
        check_end(
            "target",
            self.target_offset,
            self.span(|each| each.target_stride),
            target,
        )?;
        let parallel = self.len_bytes() >= PARALLEL_THRESHOLD && self.target_is_nested();
        let threads = if parallel {
            thread::available_parallelism().map_or(1, NonZero::get)
        } else {
            1
        };
        self.copy_over(threads, source, target);
        Ok(())
    }

    /// The bytes from the start of the first run to the end of the last; `None` if they overflow.
    fn span(&self, stride: impl Fn(&Loop) -> usize) -> Option<usize> {
        self.loops.iter().try_fold(self.run_bytes, |span, each| {
            span.checked_add((each.count - 1).checked_mul(stride(each))?)
        })
    }

    /// Whether each loop moves the target past all that the loops inside it write.
    pub(super) fn target_is_nested(&self) -> bool {
        let mut span = self.run_bytes;
        self.loops.iter().rev().all(|each| {
            let nested = each.target_stride >= span;
            span += (each.count - 1) * each.target_stride;
            nested
        })
    }

    /// Copies with `threads` threads, halving the work until each has its share. The target must be
    /// nested if there are several.
    pub(super) fn copy_over(&self, threads: usize, source: &[u8], target: &mut [u8]) {
        if threads <= 1 {
            return self.copy_alone(source, target);
        }
        let Some((first, mut second)) = self.halves() else {
            return self.copy_alone(source, target);
        };
        let (low, high) = target.split_at_mut(second.target_offset);
        second.target_offset = 0;
        let share = share(threads, first.len_bytes(), self.len_bytes());
        thread::scope(|scope| {
            scope.spawn(move || first.copy_over(share, source, low));
            second.copy_over(threads - share, source, high);
        });
    }

    /// Two copies that together are this one, the first before the second in the target; `None` if
    /// it is one byte.
    fn halves(&self) -> Option<(Runs, Runs)> {
        let (mut first, mut second) = (self.clone(), self.clone());
        let (source_step, target_step) = match self.loops.iter().position(|each| each.count > 1) {
            Some(index) => {
                let half = self.loops[index].count / 2;
                first.loops[index].count = half;
                second.loops[index].count -= half;
                let Loop {
                    source_stride,
                    target_stride,
                    ..
                } = self.loops[index];
                (half * source_stride, half * target_stride)
            }
            None => {
                let half = self.run_bytes / 2;
                first.run_bytes = half;
                second.run_bytes -= half;
                (half, half)
            }
        };
        second.source_offset += source_step;
        second.target_offset += target_step;
        (first.run_bytes > 0).then_some((first, second))
    }

    fn copy_alone(&self, source: &[u8], target: &mut [u8]) {
        match self.run_bytes {
            1 => self.copy_tiny::<1>(source, target),
            2 => self.copy_tiny::<2>(source, target),
            4 => self.copy_tiny::<4>(source, target),
            8 => self.copy_tiny::<8>(source, target),
            len => walk(
                &self.crossing_loops_inside(),
                self.source_offset,
                self.target_offset,
                &mut |from, to| {
                    target[to..to + len].copy_from_slice(&source[from..from + len]);
                },
            ),
        }
    }

    /// Copies runs whose length the compiler knows: a load and a store each.
    fn copy_tiny<const LEN: usize>(&self, source: &[u8], target: &mut [u8]) {
        walk(
            &self.crossing_loops_inside(),
            self.source_offset,
            self.target_offset,
            &mut |from, to| {
                target[to..to + LEN].copy_from_slice(&source[from..from + LEN]);
            },
        );
    }

    /// The loops with the one that steps least through the source moved next to the innermost, to
    /// be tiled with it.
    fn crossing_loops_inside(&self) -> Vec<Loop> {
        let mut loops = self.loops.clone();
        let last = loops.len().saturating_sub(1);
        let finest = (0..loops.len()).min_by_key(|&index| loops[index].source_stride);
        if let Some(finest) = finest.filter(|&finest| finest < last) {
            loops[finest..last].rotate_left(1);
        }
        loops
    }
}

/// The first half's part of the threads: at least one, and never all.
fn share(threads: usize, first: usize, all: usize) -> usize {
    (threads.saturating_mul(first) / all).clamp(1, threads - 1)
}

fn check_end(
    buffer: &'static str,
    offset: usize,
    span: Option<usize>,
    bytes: &[u8],
) -> Result<(), Error> {
    let end = span
        .and_then(|span| span.checked_add(offset))
        .ok_or(Error::TooLarge)?;
    if end > bytes.len() {
        return Err(Error::OutOfBounds {
            buffer,
            end,
            len: bytes.len(),
        });
    }
    Ok(())
}

/// Calls `copy` with the source and the target of every run.
fn walk(loops: &[Loop], source: usize, target: usize, copy: &mut impl FnMut(usize, usize)) {
    match loops {
        [] => copy(source, target),
        [inner] => {
            for index in 0..inner.count {
                copy(
                    source + index * inner.source_stride,
                    target + index * inner.target_stride,
                );
            }
        }
        [outer, inner] if outer.source_stride < inner.source_stride => {
            walk_tiled(outer, inner, source, target, copy);
        }
        [outer, rest @ ..] => {
            for index in 0..outer.count {
                walk(
                    rest,
                    source + index * outer.source_stride,
                    target + index * outer.target_stride,
                    copy,
                );
            }
        }
    }
}

/// Walks two loops of which the outer steps less through the source, the inner through the target.
fn walk_tiled(
    outer: &Loop,
    inner: &Loop,
    source: usize,
    target: usize,
    copy: &mut impl FnMut(usize, usize),
) {
    for top in (0..outer.count).step_by(TILE) {
        for left in (0..inner.count).step_by(TILE) {
            for row in top..(top + TILE).min(outer.count) {
                for column in left..(left + TILE).min(inner.count) {
                    copy(
                        source + row * outer.source_stride + column * inner.source_stride,
                        target + row * outer.target_stride + column * inner.target_stride,
                    );
                }
            }
        }
    }
}
