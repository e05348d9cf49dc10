//! Threads that lend each other slices for the time of a visit.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A place where a fixed number of threads come together, again and again, to read what the others lend.
///
/// Nothing is copied: everyone reads everyone's memory. That is sound because a slice is lent for the time of the visit of its
/// owner, and a visit that others may read ends when all have read. `Call` says what a visit is for; all must say the same.
#[derive(Debug)]
pub struct Meeting<Call> {
    state: Mutex<State<Call>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<Call> {
    /// Who has come, and what each lends.
    guests: Vec<Option<Guest<Call>>>,
    /// Who has come, also if it has given up since.
    came: Vec<bool>,
    /// Everyone has come, and has not left yet.
    reading: bool,
    left: usize,
    round: u64,
    closed: Option<String>,
}

#[derive(Debug)]
struct Guest<Call> {
    call: Call,
    lent: Lent,
}

/// A slice of some thread that is visiting.
#[derive(Debug, Clone, Copy)]
struct Lent {
    start: *const u8,
    len: usize,
}

// SAFETY: it is read only as the slice that its owner lends, which is a shared slice of plain bytes.
unsafe impl Send for Lent {}

/// Why a visit came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missed<Call> {
    /// Some did not come in time.
    Absent(Vec<usize>),
    /// Not everyone came for the same; what each came for.
    Differ(Vec<Call>),
    /// The meeting was closed, for this reason.
    Closed(String),
}

impl<Call: Clone + PartialEq + fmt::Debug> Meeting<Call> {
    /// A place for `size` threads, which are numbered from 0 on.
    pub fn new(size: usize) -> Self {
        Self {
            state: Mutex::new(State {
                guests: (0..size).map(|_| None).collect(),
                came: vec![false; size],
                reading: false,
                left: 0,
                round: 0,
                closed: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Lends `bytes` to all, calls `read` with what everyone lends, in the order of their numbers, and returns when all have read.
    ///
    /// # Errors
    /// If somebody does not come within `patience`, comes for something else, or the meeting is closed. Nobody reads anything then.
    ///
    /// # Panics
    /// If `number` is not that of a guest, or is here already: that is two threads with one number.
    pub fn visit<R>(
        &self,
        number: usize,
        call: Call,
        bytes: &[u8],
        patience: Duration,
        read: impl FnOnce(&[&[u8]]) -> R,
    ) -> Result<R, Missed<Call>> {
        let lent = Lent {
            start: bytes.as_ptr(),
            len: bytes.len(),
        };
        self.come(number, Guest { call, lent }, patience)?;
        // From here on others read `bytes`, so that the visit ends with everyone's, whatever `read` does.
        let leaving = Leaving(self);
        let (calls, lent) = self.all();
        if calls.iter().any(|call| *call != calls[0]) {
            return Err(Missed::Differ(calls));
        }
        // SAFETY: each slice was lent by a thread that is inside `visit` and borrows it there until all have left, and this thread has
        // not left yet.
        let slices: Vec<&[u8]> = lent
            .iter()
            .map(|lent| unsafe { std::slice::from_raw_parts(lent.start, lent.len) })
            .collect();
        let answer = read(&slices);
        drop(leaving);
        Ok(answer)
    }

    /// Ends all visits that wait for somebody, and all that begin later.
    pub fn close(&self, reason: &str) {
        let mut state = self.lock();
        state.closed.get_or_insert_with(|| reason.to_string());
        self.changed.notify_all();
    }

    /// Comes in, and waits until all have.
    fn come(
        &self,
        number: usize,
        guest: Guest<Call>,
        patience: Duration,
    ) -> Result<(), Missed<Call>> {
        let deadline = Instant::now() + patience;
        // The visit before may not be over for others.
        let mut state = self.wait(deadline, None, |state| !state.reading)?;
        assert!(state.guests[number].is_none(), "two guests with one number");
        state.guests[number] = Some(guest);
        state.came[number] = true;
        if state.guests.iter().all(Option::is_some) {
            state.reading = true;
            self.changed.notify_all();
            return Ok(());
        }
        let round = state.round;
        drop(state);
        let here = |state: &State<Call>| state.reading || state.round != round;
        self.wait(deadline, Some(number), here).map(drop)
    }

    /// What everyone came for, and lends.
    fn all(&self) -> (Vec<Call>, Vec<Lent>) {
        let state = self.lock();
        let guests = state.guests.iter().flatten();
        guests.map(|guest| (guest.call.clone(), guest.lent)).unzip()
    }

    /// Waits for `until`. Who gives up while the others still come takes back what it lent: nobody has read it.
    fn wait(
        &self,
        deadline: Instant,
        number: Option<usize>,
        until: impl Fn(&State<Call>) -> bool,
    ) -> Result<MutexGuard<'_, State<Call>>, Missed<Call>> {
        let mut state = self.lock();
        loop {
            if until(&state) && (number.is_some() || state.closed.is_none()) {
                return Ok(state);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let missed = match &state.closed {
                Some(reason) => Some(Missed::Closed(reason.clone())),
                None if left.is_zero() => Some(Missed::Absent(state.absent())),
                None => None,
            };
            if let Some(missed) = missed {
                if let Some(number) = number {
                    state.guests[number] = None;
                }
                return Err(missed);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<Call>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Call> State<Call> {
    /// Who has not come, or if all have, who has given up; while a visit is not over, those are not known to be late.
    ///
    /// Many give up at the same moment, and the first of them is not to be blamed by the next.
    fn absent(&self) -> Vec<usize> {
        let numbers = || 0..self.guests.len();
        let mut absent: Vec<usize> = numbers().filter(|number| !self.came[*number]).collect();
        if absent.is_empty() {
            absent = numbers().filter(|it| self.guests[*it].is_none()).collect();
        }
        absent
    }
}

/// A guest on its way out, which waits for all others: they may still read what it lent.
struct Leaving<'a, Call>(&'a Meeting<Call>);

impl<Call> Drop for Leaving<'_, Call> {
    fn drop(&mut self) {
        let meeting = self.0;
        let mut state = meeting.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.left += 1;
        if state.left == state.guests.len() {
            state.guests.iter_mut().for_each(|guest| *guest = None);
            state.came.fill(false);
            state.left = 0;
            state.reading = false;
            state.round += 1;
            meeting.changed.notify_all();
            return;
        }
        let round = state.round;
        while state.round == round {
            let waited = meeting.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Threads that come, come late, come for something else, and panic.

    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    const LONG: Duration = Duration::from_secs(60);

    fn all<R: Send>(size: usize, visit: impl Fn(usize) -> R + Sync) -> Vec<R> {
        thread::scope(|scope| {
            let visit = &visit;
            let guests: Vec<_> = (0..size)
                .map(|number| scope.spawn(move || visit(number)))
                .collect();
            guests
                .into_iter()
                .map(|guest| guest.join().unwrap())
                .collect()
        })
    }

    #[test]
    fn everyone_reads_what_everyone_lends_round_after_round() {
        let meeting = Meeting::new(4);
        let sums = all(4, |number| {
            let mut sum = 0;
            for round in 0..if cfg!(miri) { 5 } else { 250_u8 } {
                let own = [u8::try_from(number).unwrap(), round];
                let read = meeting.visit(number, round, &own, LONG, |lent| {
                    assert!(lent.iter().all(|one| one[1] == round));
                    lent.iter().map(|one| usize::from(one[0])).sum::<usize>()
                });
                sum += read.unwrap();
            }
            sum
        });
        assert!(sums.iter().all(|sum| sum == &sums[0] && sum % 6 == 0));
    }

    #[test]
    fn who_does_not_come_is_named_and_may_come_later() {
        let meeting = Meeting::new(3);
        let short = Duration::from_millis(20);
        let missed = meeting.visit(1, "sum", &[], short, |_| ()).unwrap_err();
        assert_eq!(missed, Missed::Absent(vec![0, 2]));
        // Who gave up before is not the one to blame, as long as there is another.
        let missed = meeting.visit(0, "sum", &[], short, |_| ()).unwrap_err();
        assert_eq!(missed, Missed::Absent(vec![2]));
        let missed = meeting.visit(2, "sum", &[], short, |_| ()).unwrap_err();
        assert_eq!(missed, Missed::Absent(vec![0, 1]));
        all(3, |number| {
            meeting.visit(number, "sum", &[], LONG, |_| ()).unwrap()
        });
    }

    #[test]
    fn who_comes_for_something_else_is_told_to_all() {
        let meeting = Meeting::new(2);
        let missed = all(2, |number| {
            let call = ["sum", "gather"][number];
            meeting.visit(number, call, &[], LONG, |_| ()).unwrap_err()
        });
        assert!(
            missed
                .iter()
                .all(|missed| *missed == Missed::Differ(vec!["sum", "gather"]))
        );
        all(2, |number| {
            meeting.visit(number, "sum", &[], LONG, |_| ()).unwrap()
        });
    }

    #[test]
    fn a_closed_meeting_lets_everyone_go() {
        let meeting = Meeting::new(2);
        let missed = thread::scope(|scope| {
            let guest = scope.spawn(|| meeting.visit(0, "sum", &[], LONG, |_| ()).unwrap_err());
            thread::sleep(Duration::from_millis(20));
            meeting.close("rank 1 is gone");
            guest.join().unwrap()
        });
        assert_eq!(missed, Missed::Closed("rank 1 is gone".into()));
        let later = meeting.visit(0, "sum", &[], LONG, |_| ()).unwrap_err();
        assert_eq!(later, Missed::Closed("rank 1 is gone".into()));
    }

    #[test]
    fn a_guest_that_panics_leaves_only_when_all_have_read() {
        let meeting = Meeting::new(2);
        let read = AtomicUsize::new(0);
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let own = vec![7; 100];
                let _ = meeting.visit(0, "sum", &own, LONG, |_| panic!("on purpose"));
            });
            let reads = scope.spawn(|| {
                let sum = |lent: &[&[u8]]| {
                    thread::sleep(Duration::from_millis(30));
                    lent[0].iter().map(|byte| usize::from(*byte)).sum()
                };
                read.store(
                    meeting.visit(1, "sum", &[], LONG, sum).unwrap(),
                    Ordering::SeqCst,
                );
            });
            assert!(panics.join().is_err());
            reads.join().unwrap();
        });
        assert_eq!(read.load(Ordering::SeqCst), 700);
    }
}
