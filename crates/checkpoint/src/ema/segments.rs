//! The memory of averages, in one piece while it rests and in segments while it is updated.
//!
//! A buffer is cut and joined again without a copy: the segments own disjoint parts of one allocation.

use bytes::BytesMut;
use cairn_tensor::{Blend, DType, Running, absorb};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most elements under one lock: threads that absorb different parts of a tensor rarely meet.
pub(super) const SEGMENT_ELEMENTS: usize = 1 << 18;

/// The elements that all averages see before the next ones are looked at: they stay in a core's own cache.
const TURN_ELEMENTS: usize = 1 << 12;

/// The size of an `f32`.
const F32_BYTES: usize = 4;

/// One average of a tensor, or of a stretch of it.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) rounded: BytesMut,
    pub(super) rest: Option<BytesMut>,
}

/// All averages of a tensor, or of a stretch of it: `None` where a definition leaves it out.
pub(super) type Memories = Vec<Option<Memory>>;

/// An update that goes on.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) step: u64,
    /// For each average the share it takes; `None` if this step is not for it.
    pub(super) weights: Vec<Option<f64>>,
    pub(super) segments: Vec<Mutex<Memories>>,
    /// The source bytes seen so far.
    pub(super) absorbed: AtomicU64,
}

impl Memory {
    pub(super) fn zeros(elements: usize, exact: bool) -> Self {
        let zeros = || BytesMut::zeroed(elements * F32_BYTES);
        Self {
            rounded: zeros(),
            rest: exact.then(zeros),
        }
    }

    /// Cuts off the first `elements`.
    fn split_to(&mut self, elements: usize) -> Self {
        let len = elements * F32_BYTES;
        Self {
            rounded: self.rounded.split_to(len),
            rest: self.rest.as_mut().map(|rest| rest.split_to(len)),
        }
    }

    /// Puts back what was cut off.
    fn unsplit(&mut self, next: Self) {
        self.rounded.unsplit(next.rounded);
        if let (Some(rest), Some(next)) = (&mut self.rest, next.rest) {
            rest.unsplit(next);
        }
    }

    /// Shows `source` to the elements from `first` on.
    fn absorb(
        &mut self,
        weight: f64,
        dtype: DType,
        first: usize,
        source: &[u8],
    ) -> Result<(), cairn_tensor::Error> {
        let count = source.len() * 8 / dtype.bits();
        let range = first * F32_BYTES..(first + count) * F32_BYTES;
        let state = Running {
            rounded: [&mut self.rounded[range.clone()]],
            rest: self.rest.as_mut().map(|rest| [&mut rest[range]]),
        };
        absorb(&Blend { weight }, state, dtype, source)
    }
}

/// Cuts off the first `elements` of every average.
pub(super) fn split_to(memories: &mut Memories, elements: usize) -> Memories {
    let cut = |memory: &mut Option<Memory>| Some(memory.as_mut()?.split_to(elements));
    memories.iter_mut().map(cut).collect()
}

/// Puts back what was cut off.
pub(super) fn unsplit(memories: &mut Memories, next: Memories) {
    for (memory, next) in memories.iter_mut().zip(next) {
        if let (Some(memory), Some(next)) = (memory, next) {
            memory.unsplit(next);
        }
    }
}

impl Update {
    /// Shows `source` to every average of a segment, from element `first` on.
    pub(super) fn absorb(
        &self,
        segment: usize,
        dtype: DType,
        first: usize,
        source: &[u8],
    ) -> Result<(), cairn_tensor::Error> {
        let mut memories = lock(&self.segments[segment]);
        let turn_bytes = TURN_ELEMENTS * dtype.bits() / 8;
        for (turn, source) in source.chunks(turn_bytes).enumerate() {
            let first = first + turn * TURN_ELEMENTS;
            for (memory, weight) in memories.iter_mut().zip(&self.weights) {
                if let (Some(memory), Some(weight)) = (memory, weight) {
                    memory.absorb(*weight, dtype, first, source)?;
                }
            }
        }
        Ok(())
    }
}

fn lock(segment: &Mutex<Memories>) -> MutexGuard<'_, Memories> {
    segment.lock().unwrap_or_else(PoisonError::into_inner)
}
