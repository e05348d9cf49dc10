//! A run's saves, and the values of a step, as one page: no network, nothing beside it.

use super::Saved;
use super::summary::{Rank, typical};
use super::values::Values;
use cairn::checkpoint::timeline::{Lane, Span, Timeline};
use serde_json::{Map, Value, json};
use std::time::Duration;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
const VALUES_STYLE: &str = include_str!("page/values.css");
const VALUES_SCRIPT: &str = include_str!("page/values.js");

/// The most spans in a page. Steps that would exceed it, the oldest first, are listed but not drawn.
const MAX_SPANS: usize = 150_000;

/// The page of these steps, showing the chosen one first.
pub(super) fn page(run: &str, saved: &[Saved], chosen: usize, values: Option<&Values>) -> String {
    let lanes: Vec<&str> = Lane::ALL.iter().map(|lane| lane.name()).collect();
    let data = json!({
        "run": run,
        "lanes": lanes,
        "chosen": chosen,
        "steps": steps(saved, chosen),
        "values": values,
    });
    // A `<` inside of a script element could end it; JSON has it in strings only.
    let data = data.to_string().replace('<', "\\u003c");
    PAGE.replace("{{style}}", &[STYLE, VALUES_STYLE].concat())
        .replace("{{script}}", &[SCRIPT, VALUES_SCRIPT].concat())
        .replace("{{data}}", &data)
}

fn steps(saved: &[Saved], chosen: usize) -> Vec<Value> {
    let mut left = MAX_SPANS;
    let mut drawn = vec![false; saved.len()];
    // The chosen one first, then from the newest back.
    let chosen_first = (!saved.is_empty()).then_some(chosen).into_iter();
    for index in chosen_first.chain((0..saved.len()).rev()) {
        if !drawn[index] {
            let rest = left.checked_sub(count(&saved[index]));
            drawn[index] = rest.is_some() || index == chosen;
            left = rest.unwrap_or(0);
        }
    }
    let steps = saved.iter().zip(drawn);
    steps.map(|(saved, drawn)| step(saved, drawn)).collect()
}

fn count(saved: &Saved) -> usize {
    let lanes = saved
        .timelines
        .ranks
        .iter()
        .flat_map(|rank| rank.spans.values());
    lanes.map(Vec::len).sum()
}

fn step(saved: &Saved, drawn: bool) -> Value {
    let ranks: Vec<Value> = match drawn {
        true => {
            let ranks = saved.ranks.iter().zip(&saved.timelines.ranks);
            ranks.map(|(rank, timeline)| row(rank, timeline)).collect()
        }
        false => typical(&saved.ranks)
            .iter()
            .map(|rank| json!(rank))
            .collect(),
    };
    let mut step = json!(saved.numbers);
    step["drawn"] = json!(drawn);
    step["ranks"] = json!(ranks);
    step
}

/// A rank's numbers, and its spans by the number of their lane: begin, length, bytes, begin, …, in microseconds.
fn row(rank: &Rank, timeline: &Timeline) -> Value {
    let lanes = timeline.spans.iter();
    let spans: Map<String, Value> = lanes
        .map(|(lane, spans)| ((*lane as usize).to_string(), flat(spans)))
        .collect();
    let mut row = json!(rank);
    row["spans"] = Value::Object(spans);
    row
}

fn flat(spans: &[Span]) -> Value {
    let numbers = spans.iter().flat_map(|span| {
        let (begin, len) = (microseconds(span.begin), microseconds(span.duration()));
        [json!(begin), json!(len), json!(span.len_bytes)]
    });
    numbers.collect()
}

/// To a tenth: finer than any screen, and short to write.
fn microseconds(duration: Duration) -> f64 {
    (duration.as_nanos() / 100) as f64 / 10.0
}

#[cfg(test)]
mod tests {
    //! A page stays within its limit, and the step that was asked for is in it.

    use super::*;
    use crate::commands::report::summary::Step;
    use cairn::checkpoint::timeline::StepTimelines;
    use std::collections::BTreeMap;

    /// A step of four ranks with `spans` spans each.
    fn saved(spans: usize) -> Saved {
        let span = |at| Span {
            begin: Duration::from_micros(at),
            end: Duration::from_micros(at + 1),
            len_bytes: 1,
        };
        let rank = |rank| Timeline {
            rank,
            spans: BTreeMap::from([(Lane::Write, (0..spans as u64).map(span).collect())]),
            ..Timeline::default()
        };
        let ranks: Vec<Timeline> = (0..4).map(rank).collect();
        Saved {
            numbers: Step::default(),
            ranks: ranks.iter().map(Rank::new).collect(),
            timelines: StepTimelines {
                ranks,
                ..StepTimelines::default()
            },
        }
    }

    #[test]
    fn the_chosen_step_is_drawn_and_of_the_others_the_newest_that_fit() {
        let third = MAX_SPANS / 4 / 3;
        let saved: Vec<Saved> = (0..4).map(|_| saved(third)).collect();
        let steps = steps(&saved, 1);
        let drawn: Vec<bool> = steps.iter().map(|step| step["drawn"] == true).collect();
        assert_eq!(drawn, [false, true, true, true]);
        assert_eq!(steps[0]["ranks"].as_array().map(Vec::len), Some(3));
        assert_eq!(steps[1]["ranks"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn a_chosen_step_beyond_the_limit_is_drawn_alone() {
        let saved = [saved(MAX_SPANS), saved(10)];
        let steps = steps(&saved, 0);
        assert_eq!(steps[0]["drawn"], true);
        assert_eq!(steps[1]["drawn"], false);
    }
}
