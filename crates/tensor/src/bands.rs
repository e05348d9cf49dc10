//! A target buffer that several threads fill at once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Gather, Run, Runs, stream::Stream};

/// The length of one band.
pub const BAND_BYTES: usize = 1 << 20;

/// A target buffer that several threads may write at once: bands of [`BAND_BYTES`], a lock on each.
///
/// Threads that fill different parts of the target rarely meet; those that do take turns. Where two
/// write the same byte, one of them wins.
#[derive(Debug)]
pub struct Bands<'a> {
    bands: Vec<Mutex<&'a mut [u8]>>,
    band_bytes: usize,
    len: usize,
    streams: bool,
}

impl<'a> Bands<'a> {
    /// Cuts `target` into bands.
    pub fn new(target: &'a mut [u8]) -> Self {
        Bands::with_band_bytes(target, BAND_BYTES)
    }

    /// Cuts `target` into bands of this length.
    pub(crate) fn with_band_bytes(target: &'a mut [u8], band_bytes: usize) -> Self {
        let len = target.len();
        Bands {
            bands: target.chunks_mut(band_bytes).map(Mutex::new).collect(),
            band_bytes,
            len,
            streams: false,
        }
    }

    /// The same, written past the caches: best if they are one of many targets, which no cache holds.
    #[must_use]
    pub fn streamed(self) -> Self {
        Bands {
            streams: true,
            ..self
        }
    }

    /// The length of the whole target in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the target has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies each run from `source`, the part at `source_base` of the source the runs speak of.
    ///
    /// # Errors
    ///
    /// If a run lies outside `source` or the target; the runs before it have been copied.
    pub fn scatter(
        &self,
        source: &[u8],
        source_base: usize,
        runs: impl Iterator<Item = Run>,
    ) -> Result<(), Error> {
        let mut writer = Writer::new(self);
        for run in runs {
            let end = run.target.checked_add(run.len).ok_or(Error::TooLarge)?;
            if end > self.len {
                return Err(Error::OutOfBounds {
                    buffer: "target",
                    end,
                    len: self.len,
                });
            }
            writer.write(run.target, piece(source, source_base, run)?);
        }
        Ok(())
    }
}

impl Bands<'_> {
    /// Copies what `runs` take of `source`, the part at `source_base` of the source they speak of.
    ///
    /// # Errors
    ///
    /// If a run lies outside the target; the runs before it have been copied.
    pub fn fill(&self, source: &[u8], source_base: usize, runs: &Runs) -> Result<(), Error> {
        let end = source_base
            .checked_add(source.len())
            .ok_or(Error::TooLarge)?;
        let Some(gathers) = runs.gathers_in(source_base..end) else {
            return self.scatter(source, source_base, runs.in_source(source_base..end));
        };
        let mut writer = Writer::new(self);
        for gather in gathers {
            let len_bytes = gather.count.checked_mul(gather.run_bytes);
            let end = len_bytes.and_then(|len| gather.target.checked_add(len));
            let end = end.ok_or(Error::TooLarge)?;
            if end > self.len {
                return Err(Error::OutOfBounds {
                    buffer: "target",
                    end,
                    len: self.len,
                });
            }
            let from = &source[gather.source - source_base..];
            match gather.run_bytes {
                1 => writer.gather::<1>(gather, from),
                2 => writer.gather::<2>(gather, from),
                4 => writer.gather::<4>(gather, from),
                _ => writer.gather::<8>(gather, from),
            }
        }
        Ok(())
    }
}

/// The bytes of `run` in `source`.
fn piece(source: &[u8], source_base: usize, run: Run) -> Result<&[u8], Error> {
    let end = run.source.checked_add(run.len).ok_or(Error::TooLarge)?;
    let start = run.source.checked_sub(source_base);
    let bytes = start.and_then(|start| source.get(start..)?.get(..run.len));
    bytes.ok_or(Error::OutsideSource {
        start: run.source,
        end,
        base: source_base,
        len: source.len(),
    })
}

/// Writes to the bands and keeps the lock of the last one, where the next run is likely to lie too.
struct Writer<'b, 'a> {
    bands: &'b Bands<'a>,
    /// Where the band starts in the target, and its lock.
    held: Option<(usize, MutexGuard<'b, &'a mut [u8]>)>,
    stream: Stream,
}

impl<'b, 'a> Writer<'b, 'a> {
    fn new(bands: &'b Bands<'a>) -> Self {
        Writer {
            bands,
            held: None,
            stream: Stream::new(),
        }
    }

    /// Writes `bytes` at `target`, which lies inside the bands.
    fn write(&mut self, mut target: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let streams = self.bands.streams;
            let (band, at, stream) = self.place(target);
            let len = bytes.len().min(band.len() - at);
            match streams {
                true => stream.copy(band, at, &bytes[..len]),
                false => band[at..at + len].copy_from_slice(&bytes[..len]),
            }
            target += len;
            bytes = &bytes[len..];
        }
    }

    /// Writes runs of `LEN` bytes, the first of which starts at the beginning of `from`; all of them lie inside the bands.
    fn gather<const LEN: usize>(&mut self, gather: Gather, from: &[u8]) {
        let Gather {
            source_stride,
            mut target,
            count,
            ..
        } = gather;
        let mut done = 0;
        while done < count {
            let (band, at, _) = self.place(target);
            let band = &mut band[at..];
            let fits = (band.len() / LEN).min(count - done);
            if fits == 0 {
                // It lies across the end of a band.
                self.write(target, &from[done * source_stride..][..LEN]);
                (done, target) = (done + 1, target + LEN);
                continue;
            }
            let places = band.chunks_exact_mut(LEN).take(fits);
            for (index, place) in places.enumerate() {
                let start = (done + index) * source_stride;
                place.copy_from_slice(&from[start..start + LEN]);
            }
            (done, target) = (done + fits, target + fits * LEN);
        }
    }

    /// Gives up the band, for others to see what was written to it.
    fn release(&mut self) {
        if let Some((_, mut band)) = self.held.take() {
            self.stream.settle(&mut band);
        }
    }

    /// The band that holds byte `target`, where in it, and what streams to it.
    fn place(&mut self, target: usize) -> (&mut [u8], usize, &mut Stream) {
        let Bands {
            bands, band_bytes, ..
        } = self.bands;
        let is_inside = |(start, band): &(usize, MutexGuard<'_, &mut [u8]>)| {
            (*start..start + band.len()).contains(&target)
        };
        if !self.held.as_ref().is_some_and(is_inside) {
            self.release(); // A thread never waits while it holds a lock.
        }
        let (start, band) = self.held.get_or_insert_with(|| {
            let index = target / band_bytes;
            // A thread that panicked left bytes unwritten, as if it had not come so far.
            (
                index * band_bytes,
                bands[index].lock().unwrap_or_else(PoisonError::into_inner),
            )
        });
        (band, target - *start, &mut self.stream)
    }
}

impl Drop for Writer<'_, '_> {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_may_cross_bands() {
        let source: Vec<u8> = (0..=255).cycle().take(2 * BAND_BYTES).collect();
        let mut target = vec![0; 2 * BAND_BYTES + 7];
        let bands = Bands::new(&mut target);
        let run = Run {
            source: 100,
            target: 5,
            len: 2 * BAND_BYTES,
        };
        bands.scatter(&source, 100, [run].into_iter()).unwrap();
        assert_eq!(bands.len(), 2 * BAND_BYTES + 7);
        assert_eq!(target[5..2 * BAND_BYTES + 5], source);
        assert_eq!(
            (&target[..5], &target[2 * BAND_BYTES + 5..]),
            (&[0; 5][..], &[0; 2][..])
        );
    }

    #[test]
    fn a_run_outside_the_source_or_the_target_is_refused() {
        let mut target = [0; 4];
        let bands = Bands::new(&mut target);
        let scatter = |source, target, len| {
            bands
                .scatter(
                    &[1, 2, 3],
                    10,
                    [Run {
                        source,
                        target,
                        len,
                    }]
                    .into_iter(),
                )
                .unwrap_err()
        };
        assert_eq!(
            scatter(9, 0, 2).to_string(),
            "the run 9..11 lies outside the source bytes 10..13"
        );
        assert_eq!(
            scatter(12, 0, 2),
            Error::OutsideSource {
                start: 12,
                end: 14,
                base: 10,
                len: 3
            }
        );
        assert_eq!(
            scatter(10, 3, 2),
            Error::OutOfBounds {
                buffer: "target",
                end: 5,
                len: 4
            }
        );
        assert_eq!(scatter(usize::MAX, 0, 2), Error::TooLarge);
        assert_eq!(scatter(10, usize::MAX, 2), Error::TooLarge);
        assert_eq!(target, [0; 4]);
    }

    #[test]
    fn a_thread_that_panics_does_not_stop_the_others() {
        let mut target = [0; 4];
        let bands = Bands::new(&mut target);
        let runs = |fail: bool| {
            (0..2).map(move |index| {
                assert!(!fail || index == 0, "a broken iterator");
                Run {
                    source: index,
                    target: index,
                    len: 1,
                }
            })
        };
        std::thread::scope(|scope| {
            let broken = scope.spawn(|| bands.scatter(&[1, 2], 0, runs(true)));
            assert!(broken.join().is_err());
            bands.scatter(&[3, 4], 0, runs(false)).unwrap();
        });
        assert_eq!(target, [3, 4, 0, 0]);
    }
}
