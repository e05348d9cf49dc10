//! A timeline in the columns of a terminal.

use crate::{Span, Timeline, Work};

/// Some columns of a row in which one thing happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// What is being done, or nothing.
    pub work: Option<Work>,
    /// The columns: the number of the micro-batch, where it fits, with a letter for the chunk, where there are several; then a line.
    pub text: String,
}

/// Draws each stage in at most `columns` columns; rows have the same scale.
///
/// ```text
/// 0─1─····0━━━2─1━━━··2━━━
/// ··0─0━━━1─1━━━2─2━━━····
/// ```
pub fn rows(timeline: &Timeline, columns: usize) -> Vec<Vec<Stretch>> {
    let scale = scale(timeline, columns);
    let row = |spans: &Vec<Span>| {
        let mut row = Vec::new();
        let mut drawn = 0;
        for span in spans {
            let (start, end) = (column(span.start * scale), column(span.end * scale));
            row.extend(idle(start.saturating_sub(drawn)));
            row.extend(stretch(timeline, span, end.saturating_sub(start)));
            drawn = end;
        }
        row.extend(idle(column(timeline.total * scale).saturating_sub(drawn)));
        row
    };
    timeline.stages.iter().map(row).collect()
}

/// Columns for a unit of time: whole columns for the shortest action, if it can have one.
fn scale(timeline: &Timeline, columns: usize) -> f64 {
    if timeline.total <= 0.0 {
        return 0.0;
    }
    let widest = columns as f64 / timeline.total;
    let spans = timeline.stages.iter().flatten();
    let lengths = spans.map(|span| span.end - span.start);
    let shortest = lengths
        .filter(|length| *length > 0.0)
        .fold(f64::INFINITY, f64::min);
    match shortest.is_finite() && shortest * widest >= 1.0 {
        true => (shortest * widest).floor() / shortest,
        false => widest,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a float saturates")]
fn column(at: f64) -> usize {
    at.round() as usize
}

fn idle(columns: usize) -> Option<Stretch> {
    (columns > 0).then(|| Stretch {
        work: None,
        text: "·".repeat(columns),
    })
}

fn stretch(timeline: &Timeline, span: &Span, columns: usize) -> Option<Stretch> {
    let line = match span.action.work {
        Work::Forward => "─",
        Work::Backward => "━",
    };
    let mut label = span.action.micro_batch.to_string();
    if timeline.chunks > 1 {
        label.push_str(&letter(span.action.chunk));
    }
    // A label that fills its columns would run into the next.
    let text = match label.len() < columns {
        true => label.clone() + &line.repeat(columns - label.len()),
        false => line.repeat(columns),
    };
    (columns > 0).then_some(Stretch {
        work: Some(span.action.work),
        text,
    })
}

/// `a`, `b`, …; chunks beyond the letters go by their numbers.
fn letter(chunk: usize) -> String {
    match u8::try_from(chunk) {
        Ok(chunk) if chunk < 26 => char::from(b'a' + chunk).to_string(),
        _ => format!(".{chunk}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Costs, Schedule, simulate};
    use proptest::prelude::*;

    fn draw(schedule: &Schedule, columns: usize) -> Vec<String> {
        let costs = Costs::equal(schedule.parts(), 1.0, 2.0, 0.0);
        let rows = rows(&simulate(schedule, &costs).unwrap(), columns);
        let text = |row: &Vec<Stretch>| row.iter().map(|part| part.text.as_str()).collect();
        rows.iter().map(text).collect()
    }

    #[test]
    fn actions_have_whole_columns_and_labels_that_fit() {
        let schedule = Schedule::one_forward_one_backward(2, 3).unwrap();
        assert_eq!(
            draw(&schedule, 25),
            ["0─1─····0━━━2─1━━━··2━━━", "··0─0━━━1─1━━━2─2━━━····"]
        );
        let interleaved = Schedule::interleaved(2, 2, 2).unwrap();
        assert_eq!(
            draw(&interleaved, 45),
            [
                "0a─1a─0b─1b─······0b━━━━···1b━━━━0a━━━━1a━━━━",
                "···0a─1a─0b─0b━━━━1b─1b━━━━0a━━━━1a━━━━······"
            ]
        );
    }

    proptest! {
        #[test]
        fn rows_are_equally_long_and_fit(
            stages in 1_usize..6, chunks in 1_usize..3, micro_batches in 1_usize..9, columns in 1_usize..200,
        ) {
            let schedule = Schedule::interleaved(stages, chunks, micro_batches).unwrap();
            let lens: Vec<usize> =
                draw(&schedule, columns).iter().map(|row| row.chars().count()).collect();
            prop_assert!(lens.iter().all(|len| *len == lens[0] && *len <= columns));
        }
    }
}
