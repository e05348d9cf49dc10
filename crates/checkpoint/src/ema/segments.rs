//! The memory of averages, in one piece while it rests and in segments while it is updated.
//!
//! A buffer is cut and joined again without a copy: the segments own disjoint parts of one allocation.

use bytes::{Bytes, BytesMut};
use cairn_tensor::{Blend, DType, Running, absorb};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The most elements under one lock: threads that absorb different parts of a tensor rarely meet.
pub(super) const SEGMENT_ELEMENTS: usize = 1 << 18;

/// The elements that all averages see before the next ones are looked at: they stay in a core's own cache.
const TURN_ELEMENTS: usize = 1 << 12;

/// The size of an `f32`.
pub(super) const F32_BYTES: usize = 4;

/// One average of a tensor, or of a stretch of it.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) rounded: BytesMut,
    pub(super) rest: Option<BytesMut>,
    /// The same two while others may read them; the ones above are empty then.
    lent: Option<(Bytes, Option<Bytes>)>,
}

/// How long a look at memory that others still read is from the next.
const PATIENCE: Duration = Duration::from_micros(500);

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
            lent: None,
        }
    }

    /// Lets others read it, for as long as they keep what they get. Nothing is copied.
    pub(super) fn lend(&mut self) -> (Bytes, Option<Bytes>) {
        let freeze = |memory: &mut BytesMut| std::mem::take(memory).freeze();
        let lent = self
            .lent
            .take()
            .unwrap_or_else(|| (freeze(&mut self.rounded), self.rest.as_mut().map(freeze)));
        self.lent.insert(lent).clone()
    }

    /// Takes back what was lent, when nobody reads it any more.
    pub(super) fn reclaim(&mut self) {
        if let Some((rounded, rest)) = self.lent.take() {
            self.rounded = alone(rounded);
            self.rest = rest.map(alone);
        }
    }

    /// The rounded average, and what rounding left out.
    pub(super) fn slices(&self) -> (&[u8], Option<&[u8]>) {
        match &self.lent {
            Some((rounded, rest)) => (rounded, rest.as_deref()),
            None => (&self.rounded, self.rest.as_deref()),
        }
    }

    /// Cuts off the first `elements`.
    fn split_to(&mut self, elements: usize) -> Self {
        let len = elements * F32_BYTES;
        Self {
            rounded: self.rounded.split_to(len),
            rest: self.rest.as_mut().map(|rest| rest.split_to(len)),
            lent: None,
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

/// Waits until nobody else has the memory.
fn alone(mut memory: Bytes) -> BytesMut {
    if memory.is_empty() {
        // No bytes are everybody's.
        return BytesMut::new();
    }
    loop {
        match memory.try_into_mut() {
            Ok(memory) => return memory,
            Err(read) => memory = read,
        }
        thread::sleep(PATIENCE);
    }
}

/// Takes back every average that was lent.
pub(super) fn reclaim(memories: &mut [Memories]) {
    let all = memories.iter_mut().flatten().flatten();
    all.for_each(Memory::reclaim);
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
