//! A histogram in one line of text.

use crate::args::Bars;

/// Bars as high as the counts, the highest full; a count that is not zero is seen.
pub(crate) fn line(counts: &[f64], bars: Bars) -> String {
    let levels: Vec<char> = match bars {
        Bars::Unicode => "▁▂▃▄▅▆▇█".chars().collect(),
        Bars::Ascii => "_.:-=+*#".chars().collect(),
    };
    let most = counts.iter().copied().fold(0.0, f64::max);
    let bar = |count: &f64| {
        if *count <= 0.0 {
            return ' ';
        }
        let height = (count / most * levels.len() as f64).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the number of levels"
        )]
        let level = (height as usize).clamp(1, levels.len());
        levels[level - 1]
    };
    let line: String = counts.iter().map(bar).collect();
    line.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_bar_is_full_and_nothing_is_blank() {
        let counts = [1e-9, 0.0, 4.0, 8.0, 0.0];
        assert_eq!(line(&counts, Bars::Unicode), "▁ ▄█");
        assert_eq!(line(&counts, Bars::Ascii), "_ -#");
        assert_eq!(line(&[0.0], Bars::Unicode), "");
        assert_eq!(line(&[], Bars::Unicode), "");
    }
}
