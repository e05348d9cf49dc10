//! Times as the answers of S3 write them.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Year, month from 0, day from 1, of a day since 1970; then the seconds of that day.
fn parts(time: SystemTime) -> (u64, usize, u64, u64, u64) {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let days = seconds / 86_400;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month, left + 1, days, seconds % 86_400)
}

fn clock(seconds: u64) -> String {
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// As in headers: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn header(time: SystemTime) -> String {
    let (year, month, day, days, seconds) = parts(time);
    let weekday = DAYS[usize::try_from(days % 7).expect("less than 7")];
    format!(
        "{weekday}, {day:02} {} {year} {} GMT",
        MONTHS[month],
        clock(seconds)
    )
}

/// As in documents: `1994-11-06T08:49:37.000Z`.
pub(super) fn document(time: SystemTime) -> String {
    let (year, month, day, _, seconds) = parts(time);
    format!("{year}-{:02}-{day:02}T{}.000Z", month + 1, clock(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_both_standards_show_them() {
        let time = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(header(time), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(document(time), "1994-11-06T08:49:37.000Z");
        let leap = UNIX_EPOCH + Duration::from_secs(951_782_400);
        assert_eq!(document(leap), "2000-02-29T00:00:00.000Z");
    }
}
