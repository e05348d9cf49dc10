//! Both ends of an archive, read at once: around the data of one tensor they hold everything else.

use cairn_store::{Error, ObjectReader};
use std::ops::Range;

/// What is read at either end: more than torch writes around a tensor.
const END_BYTES: u64 = 4096;

/// A reader that has both ends of a range in memory.
pub(super) struct Ends<'a> {
    reader: &'a dyn ObjectReader,
    /// Bytes, and where they begin.
    ends: [(u64, Vec<u8>); 2],
}

impl<'a> Ends<'a> {
    /// Reads both ends of `range`, as far as the object has it.
    pub(super) fn read(reader: &'a dyn ObjectReader, range: &Range<u64>) -> Result<Self, Error> {
        let end = range.end.min(reader.len());
        let start = range.start.min(end);
        let middle = end.saturating_sub(END_BYTES).max(start);
        let read = |range: Range<u64>| {
            let len = (range.end - range.start).min(END_BYTES);
            let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
            reader.read_at(range.start, &mut bytes)?;
            Ok::<_, Error>((range.start, bytes))
        };
        Ok(Self {
            reader,
            ends: [read(start..middle)?, read(middle..end)?],
        })
    }
}

impl ObjectReader for Ends<'_> {
    fn len(&self) -> u64 {
        self.reader.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        for (start, bytes) in &self.ends {
            let inside = offset.checked_sub(*start).map(usize::try_from);
            let known = inside.and_then(|at| bytes.get(at.ok()?..)?.get(..buffer.len()));
            if let Some(known) = known {
                buffer.copy_from_slice(known);
                return Ok(());
            }
        }
        self.reader.read_at(offset, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pickle::Bytes;

    #[test]
    fn every_range_reads_as_it_lies_however_the_ends_meet() {
        for len in [0_usize, 1, 4095, 4096, 4097, 8192, 20_000] {
            let bytes: Vec<u8> = (0..=250).cycle().take(len + 10).collect();
            let reader = Bytes(&bytes);
            let ends = Ends::read(&reader, &(5..5 + len as u64)).unwrap();
            for start in (0..len + 10).step_by(37) {
                for wanted in [0, 1, 100, 5000] {
                    let mut buffer = vec![0; wanted];
                    let read = ends.read_at(start as u64, &mut buffer);
                    let fits = start + wanted <= bytes.len();
                    assert_eq!(read.is_ok(), fits);
                    assert!(!fits || buffer == bytes[start..start + wanted]);
                }
            }
        }
    }
}
