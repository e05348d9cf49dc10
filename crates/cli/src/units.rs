//! Sizes, ages and shares, as people write and read them.

pub(crate) use cairn::checkpoint::parse_age;

use std::time::Duration;

/// `1.5 GiB`: powers of 1024, one digit after the point.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        // What would round to 1024.0 belongs to the next unit.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// `8.03 B`: a count of parameters.
pub(crate) fn count(count: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000, " T"),
        (1_000_000_000, " B"),
        (1_000_000, " M"),
        (1000, " k"),
    ];
    match UNITS.iter().find(|(unit, _)| count >= *unit) {
        None => count.to_string(),
        Some((unit, name)) => format!("{:.2}{name}", count as f64 / *unit as f64),
    }
}

/// `3 min`: how long ago, in the largest unit that fits.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// `4 files`, `1 file`.
pub(crate) fn plural(count: usize, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// `0-3,8`: a list of ranks, with runs folded; at most `most` characters.
pub(crate) fn ranks(ranks: &[usize], most: usize) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let run = |(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    let text = runs.iter().map(run).collect::<Vec<_>>().join(",");
    if text.len() <= most {
        return text;
    }
    let first = ranks.first().copied().unwrap_or_default();
    format!("{first},… ({})", ranks.len())
}

/// Reads `512M`, `1.5 GiB`, `5GB` or a number of bytes. `GB` counts by 1000 as disks and model hubs do; `G` and `GiB` by 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let expected = || "expected a size such as `512M`, `1.5GiB` or `5GB`".to_string();
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = trimmed.split_at(split.unwrap_or(trimmed.len()));
    let number: f64 = number.trim().parse().map_err(|_| expected())?;
    let unit = unit.to_ascii_lowercase();
    let (letter, base) = match unit.strip_suffix('b').unwrap_or(&unit) {
        letter if letter.len() == 2 && letter.ends_with('i') => (&letter[..1], 1024_f64),
        letter if unit.ends_with('b') && letter.len() == 1 => (letter, 1000.0),
        letter => (letter, 1024.0),
    };
    let power = ["", "k", "m", "g", "t", "p"]
        .iter()
        .position(|known| *known == letter)
        .and_then(|power| i32::try_from(power).ok())
        .ok_or_else(expected)?;
    let bytes = number * base.powi(power);
    // Beyond 2^53 a float is no exact number of bytes, and no size anybody means.
    if !(1.0..9e15).contains(&bytes) {
        return Err(expected());
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the range was just checked"
    )]
    Ok(bytes as u64)
}

/// Reads `10%` as 0.1.
pub(crate) fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("expected a share between 0% and 100%, such as `10%`".to_string()),
    }
}

#[cfg(test)]
mod tests {
    //! Units read back what they print, and refuse nonsense.

    use super::*;

    #[test]
    fn sizes_are_printed_in_powers_of_1024() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn sizes_are_read_with_and_without_units() {
        let cases = [
            ("100", 100),
            ("1k", 1024),
            ("1KB", 1000),
            ("1.5 GiB", 3 << 29),
            ("5GB", 5_000_000_000),
            ("2T", 2 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1G", "1X", "1GBB", "nan", "inf", "0", "1e30", "é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_are_told_in_the_largest_unit_that_fits() {
        assert_eq!(age(Duration::from_secs(59)), "59 s");
        assert_eq!(age(Duration::from_secs(90_000)), "25 h");
        assert_eq!(age(Duration::from_secs(180_000)), "2 d");
    }

    #[test]
    fn shares_lie_between_nothing_and_all() {
        assert_eq!(parse_percent("10%"), Ok(0.1));
        assert_eq!(parse_percent("100"), Ok(1.0));
        for text in ["0%", "101%", "", "%", "nan"] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn runs_of_ranks_are_folded() {
        assert_eq!(ranks(&[], 20), "");
        assert_eq!(ranks(&[3], 20), "3");
        assert_eq!(ranks(&[0, 1, 2, 3, 8, 9], 20), "0-3,8,9");
        let even: Vec<usize> = (0..64).step_by(2).collect();
        assert_eq!(ranks(&even, 20), "0,… (32)");
    }
}
