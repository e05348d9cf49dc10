//! Room in memory for the parts of an upload.

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
}

/// The room that one part has, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    room: Arc<Room>,
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

    /// Waits for room. If none of the parts is on its way, all of them wait for bytes and none would ever leave: then there is some.
    pub(super) fn enter(self: &Arc<Self>) -> Place {
        let mut state = self.state();
        while state.inside >= self.most && state.leaving > 0 {
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.inside += 1;
        Place {
            room: self.clone(),
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
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.room.state();
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
        let (_stays, mut leaves) = (room.enter(), room.enter());
        leaves.leave();
        thread::scope(|scope| {
            let waits = scope.spawn(|| room.enter());
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
        let places = [room.enter(), room.enter()];
        assert_eq!(room.state().inside, 2);
        drop(places);
        assert_eq!(room.state().inside, 0);
    }
}
