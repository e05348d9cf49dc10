//! What tells the time, and times as text.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What tells the time and lets it pass: the machine, or a simulation of many machines.
///
/// Everything that decides by time asks it: deadlines of commits, and when a part was made.
pub trait Clock: Debug + Send + Sync {
    /// The time since a moment that stays the same. Never goes back.
    fn elapsed(&self) -> Duration;

    /// The time of day. Machines may disagree about it, and it may jump.
    fn now(&self) -> SystemTime;

    /// Waits.
    fn sleep(&self, duration: Duration);
}

/// The clock of this machine.
#[derive(Debug)]
pub(crate) struct MachineClock(Instant);

impl MachineClock {
    pub(crate) fn shared() -> Arc<dyn Clock> {
        Arc::new(Self(Instant::now()))
    }
}

/// The clock of this machine, for those who take one.
pub fn machine_clock() -> Arc<dyn Clock> {
    MachineClock::shared()
}

impl Clock for MachineClock {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// `2026-11-15T09:12:07Z`.
pub fn rfc3339(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The seconds from 1970 to a time that [`rfc3339`] wrote.
pub(crate) fn unix_seconds(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('Z')?.split(['-', 'T', ':']);
    let numbers: Vec<u64> = digits.map(str::parse).collect::<Result<_, _>>().ok()?;
    let [
        year @ 1970..=9999,
        month @ 1..=12,
        day @ 1..=31,
        hour @ 0..=23,
        minute @ 0..=59,
        second @ 0..=59,
    ] = numbers[..]
    else {
        return None;
    };
    let days = days_since_1970(year, month, day)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// `350 µs`, `4.2 ms`, `6.1 s`, `2 min 5 s`: a length of time, in as many digits as people compare.
pub fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    // Each limit is where the text below it would round to the next unit.
    match seconds {
        ..0.5e-6 => "0 ms".into(),
        ..0.9995e-3 => format!("{:.0} µs", seconds * 1e6),
        ..9.95e-3 => tenths(seconds * 1e3, "ms"),
        ..0.9995 => format!("{:.0} ms", seconds * 1e3),
        ..119.95 => tenths(seconds, "s"),
        _ => {
            let whole = seconds.round();
            format!("{} min {} s", (whole / 60.0).floor(), whole % 60.0)
        }
    }
}

/// Reads an age such as `90s`, `30min`, `24h` or `7d`.
///
/// # Errors
/// What an age looks like.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    let expected = || "expected an age such as `90s`, `30min`, `24h` or `7d`".to_string();
    let split = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| expected())?;
    let seconds: u64 = match unit.trim() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(expected()),
    };
    let seconds = number.checked_mul(seconds).ok_or_else(expected)?;
    Ok(Duration::from_secs(seconds))
}

/// `7d`: an age in whole seconds, as [`parse_age`] reads it.
pub(crate) fn age_text(age: Duration) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "d"), (3600, "h"), (60, "min")];
    let seconds = age.as_secs();
    let fits = |(unit, _): &&(u64, &str)| seconds > 0 && seconds.is_multiple_of(*unit);
    match UNITS.iter().find(fits) {
        Some((unit, name)) => format!("{}{name}", seconds / unit),
        None => format!("{seconds}s"),
    }
}

fn tenths(value: f64, unit: &str) -> String {
    let digits = format!("{value:.1}");
    format!("{} {unit}", digits.strip_suffix(".0").unwrap_or(&digits))
}

/// The date `days` after 1970-01-01 in the Gregorian calendar, which repeats every 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// The inverse of [`civil`]; `None` for a date that no calendar has.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let year_from_march = year - u64::from(month <= 2);
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (civil(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    //! Known dates, leap days among them, and lengths at the edge of a unit.

    use super::*;

    #[test]
    fn times_are_read_back_and_nonsense_is_not() {
        for seconds in [0, 951_782_399, 951_782_400, 1_794_729_127, 253_402_300_799] {
            let text = rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(unix_seconds(&text), Some(seconds), "{text}");
        }
        let wrong = [
            "",
            "Z",
            "2026-11-15",
            "2026-11-15T07:52:07",
            "2026-02-29T00:00:00Z",
            "2026-11-15T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "99999999999999999-01-01T00:00:00Z",
        ];
        for text in wrong {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn ages_are_read_and_written_and_overflow_is_refused() {
        for text in ["0s", "90s", "30min", "25h", "7d"] {
            assert_eq!(age_text(parse_age(text).unwrap()), text);
        }
        assert_eq!(age_text(parse_age("24 h").unwrap()), "1d");
        assert_eq!(age_text(parse_age("60m").unwrap()), "1h");
        let wrong = [
            "",
            "7",
            "d",
            "-1d",
            "99999999999999999999d",
            "999999999999999999d",
        ];
        for text in wrong {
            assert!(parse_age(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_of_time_are_short() {
        let cases = [
            (0, "0 ms"),
            (499, "0 ms"),
            (1_400, "1 µs"),
            (999_400, "999 µs"),
            (999_600, "1 ms"),
            (4_000_000, "4 ms"),
            (4_200_000, "4.2 ms"),
            (9_960_000, "10 ms"),
            (999_400_000, "999 ms"),
            (999_600_000, "1 s"),
            (6_100_000_000, "6.1 s"),
            (119_940_000_000, "119.9 s"),
            (119_960_000_000, "2 min 0 s"),
            (u64::MAX, "307445734 min 34 s"),
        ];
        for (nanoseconds, text) in cases {
            let duration = Duration::from_nanos(nanoseconds);
            assert_eq!(duration_text(duration), text, "{nanoseconds} ns");
        }
    }

    #[test]
    fn known_times_are_written_as_people_write_them() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_164_799), "2024-02-28T23:59:59Z");
        assert_eq!(at(1_794_729_127), "2026-11-15T07:52:07Z");
    }
}
