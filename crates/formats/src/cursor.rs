//! Numbers and bytes one after another, in memory.

/// The most bytes of strings that share prefixes.
const MAX_PREFIXED_BYTES: usize = 256 << 20;

/// The bytes that are left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    /// The next bytes; `None` if there are fewer.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// A number in groups of seven bits, the lowest first.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits
                .checked_shl(shift)
                .filter(|shifted| shifted >> shift == bits)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A number of things that are at least one byte each: no more than there are bytes.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.varint()?).ok()?;
        (count <= self.0.len()).then_some(count)
    }

    pub(crate) fn varints(&mut self, count: usize) -> Option<Vec<u64>> {
        (0..count).map(|_| self.varint()).collect()
    }

    /// Numbers that are lengths of something that follows.
    pub(crate) fn lengths(&mut self, count: usize) -> Option<Vec<usize>> {
        let numbers = self.varints(count)?.into_iter();
        numbers.map(|number| usize::try_from(number).ok()).collect()
    }

    /// Strings of which each begins like the one before for so many bytes.
    pub(crate) fn prefixed(
        &mut self,
        prefixes: &[usize],
        suffixes: &[usize],
    ) -> Option<Vec<Vec<u8>>> {
        let mut strings: Vec<Vec<u8>> = Vec::with_capacity(suffixes.len());
        let mut total = 0_usize;
        for (index, suffix) in suffixes.iter().enumerate() {
            let prefix = match index.checked_sub(1) {
                None => &[][..],
                Some(before) => strings[before].get(..prefixes[before])?,
            };
            let string = [prefix, self.take(*suffix)?].concat();
            // Shared prefixes can make little into much.
            total = total
                .checked_add(string.len())
                .filter(|total| *total <= MAX_PREFIXED_BYTES)?;
            strings.push(string);
        }
        Some(strings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_they_should() {
        let read = |bytes: &[u8]| Cursor(bytes).varint();
        assert_eq!(read(&[0x80, 0x08]), Some(1024));
        assert_eq!(read(&[0xff; 9]), None, "cut short");
        let largest = [[0xff; 9].as_slice(), &[1]].concat();
        assert_eq!(read(&largest), Some(u64::MAX));
        let larger = [[0xff; 9].as_slice(), &[2]].concat();
        assert_eq!(read(&larger), None);
    }

    #[test]
    fn a_count_is_no_more_than_there_are_bytes() {
        assert_eq!(Cursor(&[2, 0, 0]).count(), Some(2));
        assert_eq!(Cursor(&[3, 0, 0]).count(), None);
    }

    #[test]
    fn strings_share_what_they_say() {
        let strings = Cursor(b"abcXY").prefixed(&[2, 4], &[3, 1, 1]);
        assert_eq!(strings, None, "a prefix is part of the string before");
        let strings = Cursor(b"abcXY").prefixed(&[2, 3], &[3, 1, 1]).unwrap();
        assert_eq!(
            strings,
            [b"abc".to_vec(), b"abX".to_vec(), b"abXY".to_vec()]
        );
    }
}
