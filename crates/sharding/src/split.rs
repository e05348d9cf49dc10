//! The split rule: how `n` things are cut into parts.
//!
//! There is one rule for everything that is cut: chunks of `ceil(n / parts)`, the last ones shorter or
//! empty. 7 over 4 is 2, 2, 2, 1; 5 over 4 is 2, 2, 1, 0; 2 over 4 is 1, 1, 0, 0.

use std::ops::Range;

/// The part of `0..n` that falls to `index` of `parts`.
///
/// ```
/// use cairn_sharding::chunk;
/// let lengths: Vec<_> = (0..4).map(|index| chunk(5, 4, index).len()).collect();
/// assert_eq!(lengths, [2, 2, 1, 0]);
/// ```
///
/// # Panics
/// If `parts` is 0.
pub fn chunk(n: usize, parts: usize, index: usize) -> Range<usize> {
    let len = chunk_len(n, parts);
    let start = len.saturating_mul(index).min(n);
    start..start.saturating_add(len).min(n)
}

/// The length of every part but the last ones: `ceil(n / parts)`.
pub(crate) fn chunk_len(n: usize, parts: usize) -> usize {
    n.div_ceil(parts)
}

/// Cuts a range along one more axis.
pub(crate) fn subrange(range: Range<usize>, parts: usize, index: usize) -> Range<usize> {
    let part = chunk(range.len(), parts, index);
    range.start + part.start..range.start + part.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_dims_leave_the_last_parts_empty() {
        let lengths = |n, parts| -> Vec<usize> {
            (0..parts)
                .map(|index| chunk(n, parts, index).len())
                .collect()
        };
        assert_eq!(lengths(7, 4), [2, 2, 2, 1]);
        assert_eq!(lengths(5, 4), [2, 2, 1, 0]);
        assert_eq!(lengths(2, 4), [1, 1, 0, 0]);
        assert_eq!(lengths(0, 2), [0, 0]);
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        assert_eq!(chunk(usize::MAX, 2, 1).end, usize::MAX);
        assert_eq!(chunk(usize::MAX, 1, usize::MAX).len(), 0);
    }

    proptest! {
        #[test]
        fn parts_follow_each_other_and_cover_everything(n in 0usize..100, parts in 1usize..20) {
            let mut end = 0;
            for index in 0..parts {
                let part = chunk(n, parts, index);
                prop_assert_eq!(part.start, end);
                end = part.end;
            }
            prop_assert_eq!(end, n);
        }
    }
}
