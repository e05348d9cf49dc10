//! A target buffer that several threads fill at once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Run};

/// The length of one band.
pub const BAND_BYTES: usize = 1 << 20;

/// A target buffer that several threads may write at once, cut into bands of [`BAND_BYTES`] with a lock each.
///
/// Threads that fill different parts of the target rarely meet; those that do take turns. Where two write the same
/// byte, one of them wins.
#[derive(Debug)]
pub struct Bands<'a> {
    bands: Vec<Mutex<&'a mut [u8]>>,
    len: usize,
}

impl<'a> Bands<'a> {
    /// Cuts `target` into bands.
    pub fn new(target: &'a mut [u8]) -> Self {
        let len = target.len();
        Bands {
            bands: target.chunks_mut(BAND_BYTES).map(Mutex::new).collect(),
            len,
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

    /// Copies each run from `source`, whose first byte is byte `source_base` of the source the runs speak of.
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
        let mut writer = Writer {
            bands: &self.bands,
            held: None,
        };
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

/// Writes to the bands and keeps the lock of the last one, since the next run is likely to lie there too.
struct Writer<'b, 'a> {
    bands: &'b [Mutex<&'a mut [u8]>],
    held: Option<(usize, MutexGuard<'b, &'a mut [u8]>)>,
}

impl Writer<'_, '_> {
    /// Writes `bytes` at `target`, which lies inside the bands.
    fn write(&mut self, mut target: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let start = target % BAND_BYTES;
            let len = bytes.len().min(BAND_BYTES - start);
            self.band(target / BAND_BYTES)[start..start + len].copy_from_slice(&bytes[..len]);
            target += len;
            bytes = &bytes[len..];
        }
    }

    fn band(&mut self, index: usize) -> &mut [u8] {
        if !matches!(&self.held, Some((held, _)) if *held == index) {
            self.held = None; // Let go before taking the next: a thread never waits while it holds a lock.
        }
        let bands = self.bands;
        let (_, band) = self.held.get_or_insert_with(|| {
            // A thread that panicked left bytes half written, which is no worse than bytes not yet written.
            (
                index,
                bands[index].lock().unwrap_or_else(PoisonError::into_inner),
            )
        });
        band
    }
}
