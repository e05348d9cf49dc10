//! Copies to memory that nobody reads soon: they go past the caches, so that what is overwritten is not read first.

#![expect(
    unsafe_code,
    reason = "stores past the caches are instructions without a safe form"
)]

/// Shorter copies are made as usual: most of one would be its ends.
const MIN_BYTES: usize = 256;

/// Copies `source` to `target`, which is as long. Others see it after [`settle`].
pub(crate) fn copy(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "lengths of a copy");
    if source.len() < MIN_BYTES || !lines::copy(target, source) {
        target.copy_from_slice(source);
    }
}

/// Makes all copies of this thread visible to whoever it hands the target to.
pub(crate) fn settle() {
    lines::settle();
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod lines {
    use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    /// What a processor writes to memory at once.
    const LINE_BYTES: usize = 64;

    /// Copies as many bytes as both have, unless the processor cannot.
    pub(super) fn copy(target: &mut [u8], source: &[u8]) -> bool {
        let can = std::arch::is_x86_feature_detected!("avx");
        if can {
            // SAFETY: the processor has these instructions.
            unsafe { copy_lines(target, source) };
        }
        can
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
    pub(super) fn copy(_target: &mut [u8], _source: &[u8]) -> bool {
        false
    }

    pub(super) fn settle() {}
}

#[cfg(test)]
mod tests {
    //! What arrives is what was sent, wherever it begins and ends, and nothing beside it changes.

    use super::*;

    #[test]
    fn copies_are_exact_at_every_alignment_and_length() {
        let source: Vec<u8> = (0..=250).cycle().step_by(7).take(3000).collect();
        for begin in [0, 1, 31, 63, 64, 65] {
            for len in [0, 1, MIN_BYTES - 1, MIN_BYTES, MIN_BYTES + 63, 2048, 2900] {
                let mut target = vec![0xEE; 3100];
                copy(&mut target[begin..begin + len], &source[30..30 + len]);
                settle();
                assert_eq!(target[begin..begin + len], source[30..30 + len]);
                let rest = target[..begin].iter().chain(&target[begin + len..]);
                assert!({ rest }.all(|byte| *byte == 0xEE), "{begin} {len}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "lengths of a copy")]
    fn lengths_that_differ_by_whole_lines_are_refused() {
        copy(&mut [0; 2064], &[0; 2000]);
    }
}
