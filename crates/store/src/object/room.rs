//! Room in memory for the parts of an upload, which is used again: memory that is given back to the system piece by piece is not given back.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Room for a number of parts.
#[derive(Debug)]
pub(super) struct Room {
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Parts in memory.
    inside: usize,
    /// Those of them that are on their way.
    leaving: usize,
    /// The memory of those that have left.
    spare: Vec<Vec<u8>>,
}

/// The room that one part has, until it is dropped: its bytes.
#[derive(Debug)]
pub(super) struct Place {
    room: Arc<Room>,
    bytes: Vec<u8>,
    is_leaving: bool,
}

impl Room {
    /// Room for `most` parts.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Waits for room for `len` bytes, which have any value. If none of the parts is on its way, all of them wait for bytes and none would
    /// ever leave: then there is some.
    pub(super) fn enter(self: &Arc<Self>, len: usize) -> Place {
        let mut state = self.state();
        while state.inside >= self.most && state.leaving > 0 {
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.inside += 1;
        let mut bytes = state.spare.pop().unwrap_or_default();
        drop(state);
        bytes.resize(len, 0);
        Place {
            room: self.clone(),
            bytes,
            is_leaving: false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The part is on its way.
    pub(super) fn leave(&mut self) {
        self.is_leaving = true;
        self.room.state().leaving += 1;
    }

    /// Copies `bytes` to `offset`.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Leaves out what lies behind the first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }
}

impl AsRef<[u8]> for Place {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut state = self.room.state();
        state.spare.push(bytes);
        state.inside -= 1;
        state.leaving -= usize::from(self.is_leaving);
        self.room.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    //! Who comes when it is full waits for one that leaves, and only for one that does.

    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn one_more_waits_until_one_has_left() {
        let room = Room::new(2);
        let (_stays, mut leaves) = (room.enter(1), room.enter(1));
        leaves.leave();
        thread::scope(|scope| {
            let waits = scope.spawn(|| room.enter(1));
            thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished());
            drop(leaves);
            waits.join().unwrap();
        });
        assert_eq!(room.state().inside, 1);
    }

    #[test]
    fn nobody_waits_for_parts_that_wait_themselves() {
        let room = Room::new(1);
        let places = [room.enter(1), room.enter(1)];
        assert_eq!(room.state().inside, 2);
        drop(places);
        assert_eq!(room.state().inside, 0);
    }
    #[test]
    fn memory_is_used_again_as_long_as_it_is_asked_for() {
        let room = Room::new(1);
        let mut place = room.enter(4);
        place.write(1, &[7, 8]);
        assert_eq!(place.as_ref(), [0, 7, 8, 0]);
        drop(place);
        let mut place = room.enter(6);
        assert_eq!(place.as_ref().len(), 6);
        assert!(room.state().spare.is_empty());
        place.truncate(2);
        assert_eq!(place.as_ref().len(), 2);
    }
}
