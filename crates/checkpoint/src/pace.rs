//! How fast the background may write, so that training does not notice.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Steps that take longer than usual by this much make the background slow down.
const NOTICEABLE: f64 = 1.02;
/// The share of the cap that is always allowed.
const FLOOR: f64 = 1.0 / 16.0;
/// How much a new step counts for what is usual.
const MEMORY: f64 = 0.1;

/// A cap on the bytes written a second, which backs off while training steps take longer than usual.
#[derive(Debug)]
pub struct Pace {
    cap: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rate: f64,
    /// When the next write may begin.
    free_at: Instant,
    /// What a step takes when nothing is written, in seconds.
    usual: Option<f64>,
}

impl Pace {
    /// At most `bytes_per_second`.
    pub fn new(bytes_per_second: u64) -> Self {
        let cap = bytes_per_second.max(1) as f64;
        let state = State {
            rate: cap,
            free_at: Instant::now(),
            usual: None,
        };
        Self {
            cap,
            state: Mutex::new(state),
        }
    }

    /// The bytes a second that are allowed now.
    pub fn bytes_per_second(&self) -> f64 {
        self.lock().rate
    }

    /// Tells how long a training step took, and whether anything was written meanwhile.
    pub fn observe(&self, step: Duration, writing: bool) {
        let seconds = step.as_secs_f64();
        let mut state = self.lock();
        match (writing, state.usual) {
            (false, None) => state.usual = Some(seconds),
            (false, Some(usual)) => state.usual = Some(usual + MEMORY * (seconds - usual)),
            (true, Some(usual)) if seconds > NOTICEABLE * usual => {
                state.rate = (state.rate * 0.7).max(self.cap * FLOOR);
            }
            (true, _) => state.rate = (state.rate * 1.1).min(self.cap),
        }
    }

    /// Waits until `len` bytes may be written.
    pub(crate) fn wait_for(&self, len: u64) {
        let mut state = self.lock();
        let now = Instant::now();
        let begin = state.free_at.max(now);
        let time = Duration::try_from_secs_f64(len as f64 / state.rate).unwrap_or_default();
        state.free_at = begin + time;
        drop(state);
        thread::sleep(begin - now);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_take_at_least_as_long_as_the_cap_says() {
        let pace = Pace::new(1_000_000);
        let begun = Instant::now();
        (0..5).for_each(|_| pace.wait_for(10_000));
        // The first goes at once, four wait for the ones before them.
        assert!(begun.elapsed() >= Duration::from_millis(40));
    }

    #[test]
    fn slow_steps_lower_the_rate_and_usual_ones_raise_it_to_the_cap() {
        let pace = Pace::new(1000);
        let usual = Duration::from_millis(100);
        pace.observe(usual, false);
        pace.observe(Duration::from_millis(110), true);
        assert!((pace.bytes_per_second() - 700.0).abs() < 1e-6);
        (0..100).for_each(|_| pace.observe(Duration::from_millis(200), true));
        assert!((pace.bytes_per_second() - 62.5).abs() < 1e-6);
        (0..100).for_each(|_| pace.observe(usual, true));
        assert!((pace.bytes_per_second() - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn without_a_usual_step_nothing_is_slow() {
        let pace = Pace::new(1000);
        pace.observe(Duration::from_secs(5), true);
        assert!((pace.bytes_per_second() - 1000.0).abs() < 1e-6);
    }
}
