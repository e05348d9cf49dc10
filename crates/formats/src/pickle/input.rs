//! Bytes of a file one after another, read ahead in windows.

use cairn_store::{Error, ObjectReader};
use std::ops::Range;

/// The most that is read ahead.
const MAX_WINDOW_BYTES: u64 = 1 << 20;
/// The first window: most pickles are small, and many lie in front of large data.
const FIRST_WINDOW_BYTES: u64 = 16 << 10;

/// A byte string in memory, to be read like a file.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl ObjectReader for Bytes<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.0.get(start..).unwrap_or_default();
        let Some(bytes) = rest.get(..buffer.len()) else {
            return Err(Error::Truncated {
                key: "memory".into(),
                offset,
                wanted: buffer.len() as u64,
                got: rest.len() as u64,
            });
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

/// A range of a file, read from front to back; what is skipped is not read.
pub struct Input<'a> {
    reader: &'a dyn ObjectReader,
    /// The next byte.
    position: u64,
    end: u64,
    window: Vec<u8>,
    /// Where the window begins in the file.
    window_start: u64,
    next_window: u64,
}

impl<'a> Input<'a> {
    /// The bytes `range` of a file, cut at its end.
    pub fn new(reader: &'a dyn ObjectReader, range: Range<u64>) -> Self {
        Self {
            reader,
            position: range.start,
            end: range.end.min(reader.len()),
            window: Vec::new(),
            window_start: range.start,
            next_window: FIRST_WINDOW_BYTES,
        }
    }

    /// Where the next byte lies in the file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }

    /// Passes over `len` bytes without reading them; `None` if there are fewer.
    pub fn skip(&mut self, len: u64) -> Option<Range<u64>> {
        let start = self.position;
        if len > self.remaining() {
            return None;
        }
        self.position += len;
        Some(start..self.position)
    }

    /// The next `len` bytes; `None` if there are fewer.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn take(&mut self, len: u64) -> Result<Option<&[u8]>, Error> {
        if len > self.remaining() {
            return Ok(None);
        }
        if !self.has(len) {
            self.fill(len)?;
        }
        let start = index(self.position - self.window_start);
        self.position += len;
        Ok(Some(&self.window[start..start + index(len)]))
    }

    fn has(&self, len: u64) -> bool {
        let window_end = self.window_start + self.window.len() as u64;
        self.position >= self.window_start && self.position + len <= window_end
    }

    /// Reads a window that begins here and has at least `len` bytes, of which there are so many.
    fn fill(&mut self, len: u64) -> Result<(), Error> {
        let window = len.max(self.next_window).min(self.remaining());
        self.next_window = (self.next_window * 4).min(MAX_WINDOW_BYTES);
        self.window.resize(index(window), 0);
        self.window_start = self.position;
        self.reader.read_at(self.position, &mut self.window)
    }
}

fn index(len: u64) -> usize {
    usize::try_from(len).expect("no longer than what is in memory")
}
