//! Memory that is used again and again.
//!
//! A step takes the same amounts of memory as the one before. What the system gives has to be cleared, page by page, every time; so what is dropped
//! waits here for the next who wants as much.

use crate::Real;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers of fewer elements are not worth keeping.
const SMALL: usize = 1 << 12;

/// Numbers in memory that goes back to its [`Pool`](crate::Pool) when they are dropped.
pub struct Buffer<R> {
    numbers: Vec<R>,
    home: Option<Arc<Shelf<R>>>,
}

impl<R> Buffer<R> {
    /// No numbers.
    pub fn empty() -> Self {
        Vec::new().into()
    }
}

impl<R> Deref for Buffer<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        &self.numbers
    }
}

impl<R> DerefMut for Buffer<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        &mut self.numbers
    }
}

impl<R> Drop for Buffer<R> {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.give(std::mem::take(&mut self.numbers));
        }
    }
}

impl<R> From<Vec<R>> for Buffer<R> {
    fn from(numbers: Vec<R>) -> Self {
        Self {
            numbers,
            home: None,
        }
    }
}

impl<R> fmt::Debug for Buffer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({})", self.len())
    }
}

impl<R: PartialEq> PartialEq for Buffer<R> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

/// What waits to be used again, by type.
#[doc(hidden)]
#[derive(Default)]
pub struct Shelves {
    pub(crate) singles: Arc<Shelf<f32>>,
    pub(crate) doubles: Arc<Shelf<f64>>,
}

/// Buffers of one type that wait to be used again, the oldest first.
#[doc(hidden)]
#[derive(Default)]
pub struct Shelf<R>(Mutex<Waiting<R>>);

#[derive(Default)]
struct Waiting<R> {
    buffers: Vec<Vec<R>>,
    /// The elements of these.
    elements: usize,
    /// The elements that are in use, and the most that ever were.
    used: usize,
    most_used: usize,
}

impl<R: Real> Shelf<R> {
    /// A buffer of `len` elements, and whether they may be anything.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> (Buffer<R>, bool) {
        if len < SMALL {
            return (vec![R::ZERO; len].into(), false);
        }
        let mut waiting = self.lock();
        waiting.used += len;
        waiting.most_used = waiting.most_used.max(waiting.used);
        let place = waiting.buffers.iter().rposition(|one| one.len() == len);
        let found = place.map(|place| waiting.buffers.remove(place));
        if found.is_some() {
            waiting.elements -= len;
        }
        drop(waiting);
        let old = found.is_some();
        let buffer = Buffer {
            numbers: found.unwrap_or_else(|| vec![R::ZERO; len]),
            home: Some(self.clone()),
        };
        (buffer, old)
    }
}

impl<R> Shelf<R> {
    /// Keeps a buffer for later; those that waited longest go if all are more than was ever in use.
    fn give(&self, buffer: Vec<R>) {
        let mut waiting = self.lock();
        waiting.used -= buffer.len();
        waiting.elements += buffer.len();
        waiting.buffers.push(buffer);
        let (mut too_many, most) = (0, waiting.most_used);
        while waiting.elements > most {
            waiting.elements -= waiting.buffers[too_many].len();
            too_many += 1;
        }
        let dropped: Vec<Vec<R>> = waiting.buffers.drain(..too_many).collect();
        drop(waiting);
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn what_is_dropped_is_used_again_by_who_wants_as_much() {
        let pool = Pool::new(1);
        let first = pool.buffer::<f32>(SMALL);
        let place = first.as_ptr();
        drop(first);
        assert_ne!(pool.buffer::<f32>(SMALL + 1).as_ptr(), place);
        let mut again = pool.buffer::<f32>(SMALL);
        assert_eq!(again.as_ptr(), place);
        again.fill(7.0);
        drop(again);
        let zeros = pool.zeros::<f32>(SMALL);
        assert_eq!(zeros.as_ptr(), place);
        assert!(zeros.iter().all(|number| *number == 0.0));
    }

    #[test]
    fn no_more_waits_than_was_ever_in_use() {
        let pool = Pool::new(1);
        for len in SMALL..SMALL + 100 {
            drop(pool.buffer::<f64>(len));
        }
        let waiting = pool.shelves.doubles.lock();
        assert_eq!(waiting.used, 0);
        assert!(waiting.elements <= SMALL + 100, "{}", waiting.elements);
        assert_eq!(waiting.buffers.len(), 1);
    }

    #[test]
    fn small_ones_and_vectors_have_no_home() {
        let pool = Pool::new(1);
        drop(pool.buffer::<f32>(SMALL - 1));
        drop(Buffer::from(vec![1.0_f32; SMALL]));
        assert_eq!(pool.buffer::<f32>(0).len(), 0);
        assert!(pool.shelves.singles.lock().buffers.is_empty());
    }
}
