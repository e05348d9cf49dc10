//! Copies between strided boxes, planned as equal contiguous runs.

mod copy;
mod gather;
mod iter;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::ops::Range;

pub use copy::PARALLEL_THRESHOLD;
pub use gather::{Gather, Gathers};
pub use iter::RunIter;

use crate::{DType, Error, Strided, element_count};

/// A copy between two strided boxes: nested loops over equal contiguous runs, all in bytes.
///
/// Loops stand outermost first and write the target front to back. The runs are as long and the
/// loops as few as the two boxes allow. It is plain data: compare it, print it, count it before
/// anything moves.
///
/// ```
/// use cairn_tensor::{DType, Loop, Runs, Strided};
///
/// let source = Strided::contiguous(&[4, 8, 2]).region(&[0, 0, 0], &[4, 3, 2]).unwrap();
/// let target = Strided::contiguous(&[4, 3, 2]);
/// let runs = Runs::between(DType::Bf16, &source, &target)?;
/// assert_eq!(runs.run_bytes, 3 * 2 * 2);
/// assert_eq!(runs.loops, [Loop { count: 4, source_stride: 32, target_stride: 12 }]);
/// # Ok::<(), cairn_tensor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Runs {
    /// Where the first run starts in the source.
    pub source_offset: usize,
    /// Where the first run starts in the target.
    pub target_offset: usize,
    /// The length of every run; 0 if there is nothing to copy.
    pub run_bytes: usize,
    /// The loops around the run, outermost first.
    pub loops: Vec<Loop>,
}

/// One loop of a copy: how often, and how far to move on each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Loop {
    /// The number of iterations.
    pub count: usize,
    /// The distance between iterations in the source, in bytes.
    pub source_stride: usize,
    /// The distance between iterations in the target, in bytes.
    pub target_stride: usize,
}

/// One contiguous piece of a copy, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// Where it starts in the source.
    pub source: usize,
    /// Where it starts in the target.
    pub target: usize,
    /// Its length.
    pub len: usize,
}

impl Runs {
    /// The copy of every element of `source` to the same place in `target`.
    ///
    /// If elements of the target box coincide, which of their sources ends up there is unspecified.
    ///
    /// # Errors
    ///
    /// If the shapes differ, a size overflows, or a run of elements smaller than a byte starts or
    /// ends inside one.
    pub fn between(dtype: DType, source: &Strided, target: &Strided) -> Result<Runs, Error> {
        check_boxes(dtype, source, target)?;
        if element_count(&source.shape) == Some(0) {
            return Ok(Runs {
                source_offset: 0,
                target_offset: 0,
                run_bytes: 0,
                loops: Vec::new(),
            });
        }
        let bits = dtype.bits();
        let mut run = bits;
        let mut loops = merged(loops_in_bits(bits, source, target));
        if let Some(inner) =
            loops.pop_if(|inner| inner.source_stride == run && inner.target_stride == run)
        {
            run *= inner.count;
        }
        Runs {
            source_offset: source.offset * bits,
            target_offset: target.offset * bits,
            run_bytes: run,
            loops,
        }
        .bits_to_bytes()
        .ok_or(Error::InsideByte { dtype })
    }

    /// The number of bytes copied.
    pub fn len_bytes(&self) -> usize {
        self.run_count().saturating_mul(self.run_bytes)
    }

    /// The number of runs.
    pub fn run_count(&self) -> usize {
        if self.run_bytes == 0 {
            return 0;
        }
        self.loops
            .iter()
            .fold(1, |count, each| count.saturating_mul(each.count))
    }

    /// Every run, in the order of the loops.
    pub fn iter(&self) -> RunIter {
        self.in_source(0..usize::MAX)
    }

    /// The runs that touch the source bytes `range`, clipped to it.
    ///
    /// Every loop skips the iterations outside `range`. Where the source is visited in ascending
    /// order (each stride at least the extent of the loops inside it) the cost is proportional to
    /// the runs returned.
    pub fn in_source(&self, range: Range<usize>) -> RunIter {
        RunIter::new(self, range)
    }

    /// Converts a copy counted in bits; `None` if some run starts or ends inside a byte.
    fn bits_to_bytes(mut self) -> Option<Runs> {
        let in_bytes = |bits: &mut usize| {
            let whole = bits.is_multiple_of(8);
            *bits /= 8;
            whole
        };
        let mut whole = in_bytes(&mut self.source_offset);
        whole &= in_bytes(&mut self.target_offset);
        whole &= in_bytes(&mut self.run_bytes);
        for each in &mut self.loops {
            whole &= in_bytes(&mut each.source_stride);
            whole &= in_bytes(&mut each.target_stride);
        }
        whole.then_some(self)
    }
}

/// Checks that the boxes fit each other and the address space; no later product overflows then.
fn check_boxes(dtype: DType, source: &Strided, target: &Strided) -> Result<(), Error> {
    for each in [source, target] {
        if each.shape.len() != each.strides.len() {
            return Err(Error::RankMismatch {
                dims: each.shape.len(),
                strides: each.strides.len(),
            });
        }
    }
    if source.shape != target.shape {
        return Err(Error::ShapeMismatch {
            source_shape: source.shape.clone(),
            target_shape: target.shape.clone(),
        });
    }
    element_count(&source.shape)
        .and_then(|count| count.checked_mul(dtype.bits()))
        .ok_or(Error::TooLarge)?;
    for each in [source, target] {
        each.end()
            .and_then(|end| end.checked_mul(dtype.bits()))
            .ok_or(Error::TooLarge)?;
    }
    Ok(())
}

/// One loop per dim that repeats, strides in bits, ordered so that the target is written front to
/// back.
fn loops_in_bits(bits: usize, source: &Strided, target: &Strided) -> Vec<Loop> {
    let mut loops: Vec<Loop> = (0..source.shape.len())
        .filter(|&dim| source.shape[dim] != 1)
        .map(|dim| Loop {
            count: source.shape[dim],
            source_stride: source.strides[dim] * bits,
            target_stride: target.strides[dim] * bits,
        })
        .collect();
    loops.sort_by_key(|each| Reverse((each.target_stride, each.source_stride)));
    loops
}

/// Joins each loop with the one inside it where the two step through both boxes like one.
fn merged(loops: Vec<Loop>) -> Vec<Loop> {
    let mut result: Vec<Loop> = Vec::with_capacity(loops.len());
    for inner in loops {
        match result.last_mut() {
            Some(outer)
                if outer.source_stride == inner.source_stride.saturating_mul(inner.count)
                    && outer.target_stride == inner.target_stride.saturating_mul(inner.count) =>
            {
                *outer = Loop {
                    count: outer.count * inner.count,
                    ..inner
                };
            }
            _ => result.push(inner),
        }
    }
    result
}
