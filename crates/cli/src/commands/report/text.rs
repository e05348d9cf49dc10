//! A report for people: the headline, a table of ranks, a timeline of the slowest, a line for each step.

use super::bars::{bars, scale};
use super::summary::{Rank, Step, Summary, typical};
use crate::table::{Cell, Paint, Style, Table, cell};
use crate::units::{plural, ranks as rank_list, size};
use cairn::checkpoint::duration_text;
use cairn::checkpoint::timeline::{Lane, Timeline};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most ranks that are all listed; of more, the slowest, the median and the fastest are.
const MAX_RANKS: usize = 16;

/// Everything, as text.
pub(super) fn of(summary: &Summary, slowest: Option<&Timeline>, paint: Paint) -> String {
    let step = summary.step;
    let headline = step.headline.as_deref().unwrap_or_default();
    let mut text = format!("{}\n", paint.text(Style::Bold, headline));
    text.push_str(&format!("{}\n\n", paint.text(Style::Dim, &facts(step))));
    text.push_str(&ranks(&summary.ranks, step.slowest).render(paint));
    text.push_str(&notes(&summary.ranks));
    if let Some(timeline) = slowest {
        let who = format!("\nrank {}", timeline.rank);
        let slowest = if summary.ranks.len() > 1 {
            ", the slowest"
        } else {
            ""
        };
        text.push_str(&format!("{who}{slowest}\n"));
        text.push_str(&lanes(timeline, &summary.ranks).render(paint));
    }
    if summary.steps.len() > 1 {
        text.push('\n');
        text.push_str(&steps(&summary.steps).render(paint));
    }
    if let Some(values) = summary.values {
        text.push('\n');
        text.push_str(&values.text(paint));
    }
    text
}

fn facts(step: &Step) -> String {
    let mut facts = vec![
        format!("step {}", step.step),
        step.started.clone().unwrap_or_default(),
        plural(step.world, "rank"),
        size(step.len_bytes),
        step.capture.clone(),
    ];
    facts.retain(|fact| !fact.is_empty());
    facts.join(", ")
}

fn ranks(ranks: &[Rank], slowest: Option<usize>) -> Table {
    let mut table = Table::new(&[
        " RANK", " STALL", " FENCE", " COPY", " WRITE", " COMMIT", " DURABLE", "",
    ]);
    for (rank, what) in picked(ranks, slowest) {
        let style = if what == "slowest" {
            Style::Yellow
        } else {
            Style::Dim
        };
        table.row(vec![
            rank.rank.to_string().into(),
            cell(Style::Bold, seconds(rank.stall_seconds)),
            seconds(rank.fence_seconds).into(),
            speed(rank.speed(Lane::Copy)).into(),
            speed(rank.speed(Lane::Write)).into(),
            seconds(rank.commit_seconds).into(),
            seconds(rank.durable_seconds).into(),
            cell(style, what),
        ]);
    }
    table
}

/// The ranks to list, each with what there is to say of it.
fn picked(ranks: &[Rank], slowest: Option<usize>) -> Vec<(&Rank, String)> {
    if ranks.len() > MAX_RANKS {
        let more = format!("fastest; {} more with `--json`", ranks.len() - 3);
        let words = ["slowest".to_string(), "median".to_string(), more];
        return typical(ranks).into_iter().zip(words).collect();
    }
    let mark = |rank: &Rank| match slowest == Some(rank.rank) && ranks.len() > 1 {
        true => "slowest".to_string(),
        false => String::new(),
    };
    ranks.iter().map(|rank| (rank, mark(rank))).collect()
}

/// What ranks had to say, each sentence once.
fn notes(ranks: &[Rank]) -> String {
    let mut by_note: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for rank in ranks {
        for note in &rank.notes {
            by_note.entry(note).or_default().push(rank.rank);
        }
    }
    let lines = by_note.iter().map(|(note, who)| {
        let label = if who.len() == 1 { "rank" } else { "ranks" };
        format!("\n{label} {}: {note}", rank_list(who, 40))
    });
    let text: String = lines.collect();
    if text.is_empty() { text } else { text + "\n" }
}

fn lanes(timeline: &Timeline, ranks: &[Rank]) -> Table {
    let mut table = Table::new(&["", " ", " ", ""]);
    let numbers = ranks.iter().find(|rank| rank.rank == timeline.rank);
    for (lane, spans) in &timeline.spans {
        let found = numbers.and_then(|rank| rank.lanes.get(lane.name()));
        let style = match lane {
            Lane::Stall | Lane::Fence => Style::Red,
            _ => Style::Cyan,
        };
        table.row(vec![
            lane.name().into(),
            found
                .map_or(String::new(), |lane| seconds(lane.busy_seconds))
                .into(),
            speed(found.and_then(|lane| lane.bytes_per_second)).into(),
            cell(style, bars(spans, timeline.total)),
        ]);
    }
    let end = scale(&duration_text(timeline.total));
    table.row(vec!["".into(), "".into(), "".into(), cell(Style::Dim, end)]);
    table
}

fn steps(steps: &[&Step]) -> Table {
    let mut table = Table::new(&[
        " STEP",
        " STALL",
        " DURABLE",
        " COMMITTED",
        " SIZE",
        "CAPTURE",
    ]);
    for step in steps {
        let time = |value: Option<f64>| Cell::from(value.map_or(String::new(), seconds));
        table.row(vec![
            cell(Style::Bold, step.step.to_string()),
            time(step.stall_seconds),
            time(step.durable_seconds),
            time(step.committed_seconds),
            size(step.len_bytes).into(),
            match step.headline {
                Some(_) => step.capture.as_str().into(),
                None => cell(Style::Dim, "no timeline"),
            },
        ]);
    }
    table
}

fn seconds(seconds: f64) -> String {
    duration_text(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

fn speed(bytes_per_second: Option<f64>) -> String {
    bytes_per_second.map_or(String::new(), |speed| format!("{:.2} GB/s", speed / 1e9))
}

#[cfg(test)]
mod tests {
    //! Which ranks are listed.

    use super::*;

    fn rank(rank: usize, durable: u64) -> Rank {
        let span = cairn::checkpoint::timeline::Span {
            begin: Duration::ZERO,
            end: Duration::from_secs(durable),
            len_bytes: 0,
        };
        Rank::new(&Timeline {
            rank,
            spans: BTreeMap::from([(Lane::Write, vec![span])]),
            ..Timeline::default()
        })
    }

    #[test]
    fn a_single_rank_is_not_called_slow() {
        let ranks = [rank(0, 1)];
        assert_eq!(picked(&ranks, Some(0))[0].1, "");
    }

    #[test]
    fn of_many_ranks_the_slowest_the_median_and_the_fastest_are_listed() {
        let ranks: Vec<Rank> = (0..101).map(|n| rank(n, (n as u64 * 37) % 101)).collect();
        let found = picked(&ranks, None);
        let durable: Vec<f64> = found.iter().map(|(rank, _)| rank.durable_seconds).collect();
        assert_eq!(durable, [100.0, 50.0, 0.0]);
        assert_eq!(found[2].1, "fastest; 98 more with `--json`");
    }
}
