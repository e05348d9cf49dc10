//! Copies to memory that nobody reads soon: they go past the caches, so that what is overwritten is not read first.

#![expect(
    unsafe_code,
    reason = "stores past the caches are instructions without a safe form"
)]

/// What a processor writes to memory at once.
const LINE_BYTES: usize = 64;

/// Shorter copies are made as usual: most of one would be its ends.
const MIN_BYTES: usize = 256;

/// Copies one after the other to the same target.
///
/// A line that ends one copy and begins the next is put together here and written as one. Written in two parts it would be read from
/// memory first, which costs as much as many lines that are not.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The beginning of a line that is not written yet, its length, and where it belongs.
    line: [u8; LINE_BYTES],
    len: usize,
    at: usize,
}

impl Stream {
    pub(crate) fn new() -> Self {
        Stream {
            line: [0; LINE_BYTES],
            len: 0,
            at: 0,
        }
    }

    /// Copies `source` to the bytes at `at` in `target`. Others see it after [`Stream::settle`].
    pub(crate) fn copy(&mut self, target: &mut [u8], mut at: usize, mut source: &[u8]) {
        let is_next = self.len > 0 && at == self.at + self.len;
        if !is_next || source.len() < MIN_BYTES {
            self.write_rest(target);
        }
        if source.len() < MIN_BYTES || !lines::can() {
            target[at..at + source.len()].copy_from_slice(source);
            return;
        }
        if is_next {
            let (first, rest) = source.split_at(LINE_BYTES - self.len);
            self.line[self.len..].copy_from_slice(first);
            lines::copy(&mut target[self.at..self.at + LINE_BYTES], &self.line);
            (at, source) = (at + first.len(), rest);
        }
        let begin = target[at..]
            .as_ptr()
            .align_offset(LINE_BYTES)
            .min(source.len());
        let whole = begin + (source.len() - begin) / LINE_BYTES * LINE_BYTES;
        let (source, rest) = source.split_at(whole);
        lines::copy(&mut target[at..at + whole], source);
        self.line[..rest.len()].copy_from_slice(rest);
        (self.len, self.at) = (rest.len(), at + whole);
    }

    /// Makes all copies to `target` visible to whoever it is handed to.
    pub(crate) fn settle(&mut self, target: &mut [u8]) {
        self.write_rest(target);
        lines::settle();
    }

    fn write_rest(&mut self, target: &mut [u8]) {
        target[self.at..self.at + self.len].copy_from_slice(&self.line[..self.len]);
        (self.len, self.at) = (0, 0);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod lines {
    use super::LINE_BYTES;
    use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    /// Whether the processor has what is needed.
    pub(super) fn can() -> bool {
        std::arch::is_x86_feature_detected!("avx")
    }

    /// Copies `source` to `target`, which is as long: as usual, if the processor cannot do better.
    pub(super) fn copy(target: &mut [u8], source: &[u8]) {
        assert_eq!(target.len(), source.len(), "lengths of a copy");
        if !can() {
            return target.copy_from_slice(source);
        }
        // SAFETY: the processor has these instructions.
        unsafe { copy_lines(target, source) };
    }

    pub(super) fn settle() {
        // SAFETY: every processor of this kind has it.
        unsafe { _mm_sfence() };
    }

    /// Copies whole lines past the caches, and the ends as usual.
    #[target_feature(enable = "avx")]
    fn copy_lines(target: &mut [u8], source: &[u8]) {
        let begin = target.as_ptr().align_offset(LINE_BYTES).min(target.len());
        let (head, target) = target.split_at_mut(begin);
        let (first, source) = source.split_at(begin);
        head.copy_from_slice(first);
        let (lines, tail) = target.as_chunks_mut::<LINE_BYTES>();
        let (from, last) = source.as_chunks::<LINE_BYTES>();
        for (line, from) in lines.iter_mut().zip(from) {
            let (line, from) = (line.as_mut_ptr(), from.as_ptr());
            // SAFETY: both have 64 bytes, and the line is aligned to as many.
            unsafe {
                let low = _mm256_loadu_si256(from.cast());
                let high = _mm256_loadu_si256(from.add(32).cast());
                _mm256_stream_si256(line.cast(), low);
                _mm256_stream_si256(line.add(32).cast(), high);
            }
        }
        tail.copy_from_slice(last);
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod lines {
    /// Other processors have no such instructions, or are not taught them here.
    pub(super) fn can() -> bool {
        false
    }

    pub(super) fn copy(target: &mut [u8], source: &[u8]) {
        target.copy_from_slice(source);
    }

    pub(super) fn settle() {}
}

#[cfg(test)]
mod tests {
    //! What arrives is what was sent, wherever it begins and ends, and nothing beside it changes.

    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..=250).cycle().step_by(7).take(len).collect()
    }

    #[test]
    fn copies_are_exact_at_every_alignment_and_length() {
        let source = bytes(3000);
        for begin in [0, 1, 31, 63, 64, 65] {
            for len in [0, 1, MIN_BYTES - 1, MIN_BYTES, MIN_BYTES + 63, 2048, 2900] {
                let mut target = vec![0xEE; 3100];
                let mut stream = Stream::new();
                stream.copy(&mut target, begin, &source[30..30 + len]);
                stream.settle(&mut target);
                assert_eq!(target[begin..begin + len], source[30..30 + len]);
                let rest = target[..begin].iter().chain(&target[begin + len..]);
                assert!({ rest }.all(|byte| *byte == 0xEE), "{begin} {len}");
            }
        }
    }

    #[test]
    fn copies_that_follow_one_another_or_do_not_are_exact() {
        let source = bytes(4000);
        let lens = [300, 256, 320, 20, 257, 700, 0, 319, 64, 500];
        for begin in [0, 5, 48, 63] {
            // Gaps between copies, and copies to earlier places.
            for gap in [0, 1, 64] {
                let mut expected = vec![0xEE; 6000];
                let mut target = expected.clone();
                let mut stream = Stream::new();
                let (mut from, mut at) = (0, begin);
                for (number, len) in lens.into_iter().enumerate() {
                    let place = if number == 7 { begin + 10 } else { at };
                    let piece = &source[from..from + len];
                    stream.copy(&mut target, place, piece);
                    expected[place..place + len].copy_from_slice(piece);
                    (from, at) = (from + len, at + len + gap);
                }
                stream.settle(&mut target);
                assert_eq!(target, expected, "{begin} {gap}");
            }
        }
    }
}
