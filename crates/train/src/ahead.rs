//! Steps whose data is read before they begin.

use crate::Error;
use crate::data::{Data, Shares, Step};
use cairn_data::Prefetch;
use std::fmt;

/// How many steps wait to be taken.
const DEPTH: usize = 2;

/// Reads the data of coming steps on a thread, so that no step waits for it.
pub(crate) struct Ahead {
    shares: Shares,
    /// The place after the last step that was taken.
    next: u64,
    reader: Reader,
}

enum Reader {
    /// Nothing was asked for yet, or something else than what comes next.
    Idle(Box<dyn Data>),
    Reading(Prefetch<Steps>),
    /// Only for a moment.
    Gone,
}

/// Step after step; the first error is the last item.
struct Steps {
    data: Box<dyn Data>,
    shares: Shares,
    next: u64,
    left: u64,
}

impl Iterator for Steps {
    type Item = Result<Step, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let step = self.shares.step(self.data.as_mut(), self.next);
        match &step {
            Ok(step) => self.next = step.places.end,
            Err(_) => self.left = 0,
        }
        Some(step)
    }
}

impl Ahead {
    pub(crate) fn new(data: Box<dyn Data>, shares: Shares) -> Self {
        Self {
            shares,
            next: 0,
            reader: Reader::Idle(data),
        }
    }

    /// This rank's part of the step that begins at `first`; it and those after it are `left`, and no more are read.
    pub(crate) fn step(&mut self, first: u64, left: u64) -> Result<Step, Error> {
        let mut found = None;
        if let Reader::Reading(steps) = &mut self.reader
            && self.next == first
        {
            found = steps.next();
        }
        let step = match found {
            Some(step) => step?,
            None => self.begin(first, left.max(1))?,
        };
        self.next = step.places.end;
        Ok(step)
    }

    /// Begins to read from `first` on.
    fn begin(&mut self, first: u64, left: u64) -> Result<Step, Error> {
        let data = match std::mem::replace(&mut self.reader, Reader::Gone) {
            Reader::Idle(data) => data,
            Reader::Reading(steps) => steps.into_inner().data,
            Reader::Gone => unreachable!("a reader is put back before anything can fail"),
        };
        let mut steps = Prefetch::new(
            Steps {
                data,
                shares: self.shares,
                next: first,
                left,
            },
            DEPTH,
        );
        let step = steps.next().expect("at least one step is left");
        self.reader = Reader::Reading(steps);
        step
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ahead(next: {})", self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_model::Batch;
    use std::ops::Range;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    const SHARES: Shares = Shares {
        batch: 4,
        tokens: None,
        dp: (1, 2),
        micro_batches: 1,
    };

    fn batch(places: Range<u64>) -> Batch {
        let count = places.clone().count();
        Batch {
            sequences: count,
            length: 1,
            tokens: vec![0; count],
            targets: vec![0; count],
            positions: vec![0; count],
            documents: vec![0; count],
            samples: places.collect(),
            ..Batch::default()
        }
    }

    #[test]
    fn the_next_steps_are_read_before_they_are_asked_for() {
        let (sender, asked) = mpsc::channel();
        let data = move |places: Range<u64>| {
            sender.send(places.start).expect("the test lives");
            Ok::<_, String>(batch(places))
        };
        let mut ahead = Ahead::new(Box::new(data), SHARES);
        assert_eq!(ahead.step(0, 9).unwrap().batches[0].samples, [2, 3]);
        let next = || asked.recv_timeout(Duration::from_secs(60));
        assert_eq!([next(), next(), next()], [Ok(2), Ok(6), Ok(10)]);
    }

    #[test]
    fn a_run_that_is_elsewhere_gets_what_is_there_and_nothing_is_read_behind_its_end() {
        let last = Arc::new(AtomicU64::new(0));
        let seen = last.clone();
        let data = move |places: Range<u64>| {
            seen.fetch_max(places.end, Ordering::Relaxed);
            Ok::<_, String>(batch(places))
        };
        let mut ahead = Ahead::new(Box::new(data), SHARES);
        for (first, left) in [(0, 3), (4, 2), (40, 3), (44, 2), (48, 1), (48, 1), (0, 1)] {
            let step = ahead.step(first, left).unwrap();
            assert_eq!(step.places, first..first + 4);
            assert_eq!(step.batches[0].samples, [first + 2, first + 3]);
        }
        drop(ahead);
        assert_eq!(last.load(Ordering::Relaxed), 52);
    }

    #[test]
    fn an_error_comes_in_its_place_and_may_be_gone_the_next_time() {
        let mut fails = true;
        let data = move |places: Range<u64>| match places.start {
            10 if std::mem::take(&mut fails) => Err("a bad sector"),
            _ => Ok(batch(places)),
        };
        let mut ahead = Ahead::new(Box::new(data), SHARES);
        for first in [0, 4] {
            ahead.step(first, 9).unwrap();
        }
        assert!(matches!(
            ahead.step(8, 7),
            Err(Error::Data { first: 10, .. })
        ));
        assert_eq!(ahead.step(8, 7).unwrap().places, 8..12);
        assert_eq!(ahead.step(12, 6).unwrap().places, 12..16);
    }
}
