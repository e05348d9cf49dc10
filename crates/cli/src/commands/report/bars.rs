//! A timeline as lines of text: the higher a bar, the busier the lane was at that time.

use cairn::checkpoint::timeline::Span;
use std::time::Duration;

/// The characters a whole timeline is wide.
pub(super) const WIDTH: usize = 60;

const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The bars of a lane from 0 to `total`, without the empty end. Anything that happened shows, however short.
pub(super) fn bars(spans: &[Span], total: Duration) -> String {
    // In whole numbers, so that a span that ends where a character does stays out of the next.
    let cell = total.as_nanos().max(1);
    let place = |at: Duration| (at.as_nanos() * WIDTH as u128).min(cell * WIDTH as u128);
    let mut covered = [0; WIDTH];
    for span in spans {
        let (begin, end) = (place(span.begin), place(span.end));
        for (index, covered) in covered.iter_mut().enumerate() {
            let left = index as u128 * cell;
            *covered += end.min(left + cell).saturating_sub(begin.max(left));
        }
    }
    let height = |covered: u128| HEIGHTS[(covered * 8).div_ceil(cell).min(8) as usize];
    let bar: String = covered.into_iter().map(height).collect();
    bar.trim_end().to_string()
}

/// The scale under the bars: `0` at the left, the end at the right.
pub(super) fn scale(end: &str) -> String {
    let room = WIDTH.saturating_sub(1);
    format!("0{end:>room$}")
}

#[cfg(test)]
mod tests {
    //! Bars lie where the spans do, and short ones are not lost.

    use super::*;

    fn span(begin_ms: u64, end_ms: u64) -> Span {
        Span {
            begin: Duration::from_millis(begin_ms),
            end: Duration::from_millis(end_ms),
            len_bytes: 0,
        }
    }

    #[test]
    fn bars_lie_where_the_spans_do() {
        let total = Duration::from_millis(600);
        assert_eq!(bars(&[], total), "");
        assert_eq!(bars(&[span(0, 600)], total), "█".repeat(WIDTH));
        assert_eq!(bars(&[span(10, 30), span(45, 50)], total), " ██ ▄");
        assert_eq!(bars(&[span(0, 10), span(0, 10)], total), "█");
    }

    #[test]
    fn short_spans_show_and_long_ones_end_where_the_save_does() {
        assert_eq!(bars(&[span(0, 1)], Duration::from_secs(1000)), "▁");
        let late = bars(&[span(900, 5000)], Duration::from_secs(1));
        assert_eq!(late.chars().count(), WIDTH);
        assert_eq!(bars(&[span(0, 1)], Duration::ZERO), "█".repeat(WIDTH));
        let huge = Duration::from_nanos(u64::MAX);
        let endless = Span {
            begin: Duration::ZERO,
            end: huge,
            len_bytes: 0,
        };
        assert_eq!(bars(&[endless], huge), "█".repeat(WIDTH));
    }

    #[test]
    fn the_scale_is_as_wide_as_the_bars() {
        assert_eq!(scale("6.1 s").chars().count(), WIDTH);
    }
}
