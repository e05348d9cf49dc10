//! Which bytes of an object have been written, so that no writer overlaps and none is forgotten.

use std::collections::BTreeMap;

use crate::Error;
#[cfg(doc)]
use crate::ObjectWriter;
use crate::buffer::BLOCK;

/// The ranges of one object that are written or being written.
///
/// They are disjoint, so the object is complete when their lengths add up to its length.
#[derive(Debug)]
pub(crate) struct Coverage {
    key: String,
    len: u64,
    /// Start → end of each range.
    ranges: BTreeMap<u64, u64>,
    covered: u64,
}

impl Coverage {
    /// Nothing of an object of `len` bytes.
    pub(crate) fn new(key: &str, len: u64) -> Self {
        Self {
            key: key.to_owned(),
            len,
            ranges: BTreeMap::new(),
            covered: 0,
        }
    }

    /// Takes a range for one writer, if it keeps the rules of [`ObjectWriter::write_at`].
    pub(crate) fn claim(&mut self, offset: u64, len: u64) -> Result<(), Error> {
        match self.broken_rule(offset, len) {
            Some(reason) => Err(Error::InvalidRange {
                key: self.key.clone(),
                offset,
                len,
                reason,
            }),
            None if len == 0 => Ok(()),
            None => {
                self.ranges.insert(offset, offset + len);
                self.covered += len;
                Ok(())
            }
        }
    }

    /// Gives back the range claimed at `offset`, because writing it failed.
    pub(crate) fn release(&mut self, offset: u64) {
        if let Some(end) = self.ranges.remove(&offset) {
            self.covered -= end - offset;
        }
    }

    /// Lets the object end after `len` bytes, if nothing was written behind them.
    pub(crate) fn end_at(&mut self, len: u64) -> Result<(), Error> {
        let end = self.ranges.last_key_value().map_or(0, |(_, end)| *end);
        if len > self.len || end > len {
            return Err(Error::InvalidRange {
                key: self.key.clone(),
                offset: len,
                len: end.saturating_sub(len),
                reason: "the object cannot end here",
            });
        }
        self.len = len;
        Ok(())
    }

    /// Checks that every byte is covered.
    pub(crate) fn check_complete(&self) -> Result<(), Error> {
        if self.covered == self.len {
            return Ok(());
        }
        Err(Error::Incomplete {
            key: self.key.clone(),
            written: self.covered,
            len: self.len,
        })
    }

    fn broken_rule(&self, offset: u64, len: u64) -> Option<&'static str> {
        let Some(end) = offset.checked_add(len).filter(|end| *end <= self.len) else {
            return Some("it ends beyond the object");
        };
        if !offset.is_multiple_of(BLOCK) && len > 0 {
            return Some("the offset is not a multiple of 4096");
        }
        if !len.is_multiple_of(BLOCK) && end != self.len {
            return Some("the length is not a multiple of 4096, and it is not the end");
        }
        let before = self.ranges.range(..end).next_back();
        if len > 0 && before.is_some_and(|(_, before_end)| *before_end > offset) {
            return Some("it overlaps another write");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason(coverage: &mut Coverage, offset: u64, len: u64) -> &'static str {
        match coverage.claim(offset, len) {
            Err(Error::InvalidRange { reason, .. }) => reason,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn an_empty_object_is_complete_at_once() {
        let mut coverage = Coverage::new("a", 0);
        coverage.claim(0, 0).unwrap();
        coverage.check_complete().unwrap();
    }

    #[test]
    fn ranges_that_break_a_rule_are_refused() {
        let mut coverage = Coverage::new("a", 3 * BLOCK + 5);
        assert!(reason(&mut coverage, 0, u64::MAX).contains("beyond"));
        assert!(reason(&mut coverage, u64::MAX, 2).contains("beyond"));
        assert!(reason(&mut coverage, 3 * BLOCK, 6).contains("beyond"));
        assert!(reason(&mut coverage, 1, BLOCK).contains("offset"));
        assert!(reason(&mut coverage, 0, 5).contains("length"));
        coverage.claim(BLOCK, BLOCK).unwrap();
        assert!(reason(&mut coverage, BLOCK, BLOCK).contains("overlaps"));
        assert!(reason(&mut coverage, 0, 2 * BLOCK).contains("overlaps"));
        assert!(reason(&mut coverage, 0, 3 * BLOCK + 5).contains("overlaps"));
        coverage.claim(2 * BLOCK, BLOCK + 5).unwrap();
        coverage.claim(0, BLOCK).unwrap();
        coverage.check_complete().unwrap();
    }

    #[test]
    fn a_released_range_is_missing_and_can_be_claimed_again() {
        let mut coverage = Coverage::new("a", 5);
        coverage.claim(0, 5).unwrap();
        coverage.release(0);
        assert!(matches!(
            coverage.check_complete(),
            Err(Error::Incomplete {
                written: 0,
                len: 5,
                ..
            })
        ));
        coverage.claim(0, 5).unwrap();
        coverage.check_complete().unwrap();
    }

    #[test]
    fn an_object_ends_early_only_where_nothing_lies_behind() {
        let mut coverage = Coverage::new("a", 4 * BLOCK);
        coverage.claim(BLOCK, BLOCK).unwrap();
        coverage.end_at(BLOCK).unwrap_err();
        coverage.end_at(5 * BLOCK).unwrap_err();
        coverage.end_at(2 * BLOCK).unwrap();
        coverage.check_complete().unwrap_err();
        coverage.claim(0, BLOCK).unwrap();
        coverage.check_complete().unwrap();
    }

    proptest! {
        #[test]
        fn claims_agree_with_a_map_of_blocks(
            claims in prop::collection::vec((0usize..9, 1usize..5), 0..12),
        ) {
            let mut coverage = Coverage::new("a", 10 * BLOCK);
            let mut blocks = [false; 10];
            for (start, count) in claims {
                let wanted = blocks.get_mut(start..start + count);
                let free = wanted.filter(|wanted| wanted.iter().all(|block| !block));
                let claimed = coverage.claim(start as u64 * BLOCK, count as u64 * BLOCK);
                prop_assert_eq!(claimed.is_ok(), free.is_some());
                free.into_iter().for_each(|blocks| blocks.fill(true));
            }
            let complete = blocks.iter().all(|block| *block);
            prop_assert_eq!(coverage.check_complete().is_ok(), complete);
        }
    }
}
