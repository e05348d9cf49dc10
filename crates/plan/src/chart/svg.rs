//! A timeline as a picture for a browser: one file, light or dark as the reader likes it.

use crate::{Error, Span, Timeline, Work};
use std::fmt::Write;

/// The most actions that are drawn.
pub const MAX_DRAWN: usize = 100_000;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 76.0;
const ROW: f64 = 30.0;
const GAP: f64 = 6.0;
/// Below the rows, for the axis.
const BOTTOM: f64 = 44.0;
/// About the width of a digit.
const DIGIT: f64 = 7.0;

const STYLE: &str = "\
.back{fill:#fff}.idle{fill:#f1f3f6}.line{stroke:#d9dde4}
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#667080}
.title{font-size:17px;font-weight:600;fill:#1b1f26}.stage{text-anchor:end}.tick{text-anchor:middle}
@media(prefers-color-scheme:dark){
.back{fill:#14171c}.idle{fill:#22272f}.line{stroke:#3a424e}
text{fill:#97a1b1}.title{fill:#e6e9ee}
}
.in{font-size:11px;fill:#fff;text-anchor:middle;pointer-events:none}
";

/// The colours of the first chunk and the last, forward and back.
const FORWARD: [[f64; 3]; 2] = [[59.0, 130.0, 214.0], [27.0, 78.0, 138.0]];
const BACKWARD: [[f64; 3]; 2] = [[38.0, 150.0, 87.0], [19.0, 90.0, 51.0]];

/// Draws a timeline under a title.
///
/// # Errors
/// If there is more than [`MAX_DRAWN`].
pub fn svg(timeline: &Timeline, title: &str) -> Result<String, Error> {
    let actions = timeline.stages.iter().map(Vec::len).sum();
    if actions > MAX_DRAWN {
        return Err(Error::TooMuchToDraw {
            actions,
            limit: MAX_DRAWN,
        });
    }
    let height = TOP + timeline.stages.len() as f64 * (ROW + GAP) + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <style>\n{STYLE}{}</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n",
        shades(timeline.chunks)
    );
    let title = escape(title);
    line(&mut svg, &format!("<title>{title}</title>"));
    line(
        &mut svg,
        &format!("<text class=\"title\" x=\"{RIGHT}\" y=\"34\">{title}</text>"),
    );
    legend(&mut svg, timeline);
    for stage in 0..timeline.stages.len() {
        row(&mut svg, timeline, stage);
    }
    axis(&mut svg, timeline);
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn line(svg: &mut String, text: &str) {
    svg.push_str(text);
    svg.push('\n');
}

/// A colour for each chunk, forward and back.
fn shades(chunks: usize) -> String {
    let mut style = String::new();
    for chunk in 0..chunks {
        let share = chunk as f64 / chunks.saturating_sub(1).max(1) as f64;
        for (class, [first, last]) in [("f", FORWARD), ("b", BACKWARD)] {
            let [red, green, blue] =
                [0, 1, 2].map(|part| (first[part] + share * (last[part] - first[part])).round());
            // Writing to a string does not fail.
            let _ = writeln!(style, ".{class}{chunk}{{fill:rgb({red},{green},{blue})}}");
        }
    }
    style
}

fn legend(svg: &mut String, timeline: &Timeline) {
    let mut x = RIGHT;
    let last = timeline.chunks - 1;
    for (class, name) in [("f", "forward"), ("b", "backward")] {
        let text = match last {
            0 => name.to_string(),
            _ => format!("{name}, darker for later chunks"),
        };
        for chunk in if last > 0 { vec![0, last] } else { vec![0] } {
            line(
                svg,
                &format!(
                    "<rect class=\"{class}{chunk}\" x=\"{x}\" y=\"48\" width=\"12\" height=\"12\" rx=\"2\"/>"
                ),
            );
            x += 14.0;
        }
        line(
            svg,
            &format!("<text x=\"{}\" y=\"58.5\">{text}</text>", x + 3.0),
        );
        x += 22.0 + text.len() as f64 * DIGIT;
    }
    line(
        svg,
        &format!("<rect class=\"idle\" x=\"{x}\" y=\"48\" width=\"12\" height=\"12\" rx=\"2\"/>"),
    );
    let share = 100.0 * timeline.bubble_share();
    line(
        svg,
        &format!(
            "<text x=\"{}\" y=\"58.5\">idle: {share:.1} % of all time</text>",
            x + 17.0
        ),
    );
}

fn row(svg: &mut String, timeline: &Timeline, stage: usize) {
    let y = TOP + stage as f64 * (ROW + GAP);
    let middle = y + ROW / 2.0 + 4.0;
    line(
        svg,
        &format!(
            "<text class=\"stage\" x=\"{}\" y=\"{middle}\">stage {stage}</text>",
            LEFT - 10.0
        ),
    );
    let width = WIDTH - LEFT - RIGHT;
    line(
        svg,
        &format!(
            "<rect class=\"idle\" x=\"{LEFT}\" y=\"{y}\" width=\"{width}\" height=\"{ROW}\"/>"
        ),
    );
    for span in &timeline.stages[stage] {
        action(svg, timeline, span, y);
    }
}

fn action(svg: &mut String, timeline: &Timeline, span: &Span, y: f64) {
    let (x, end) = (place(timeline, span.start), place(timeline, span.end));
    let class = match span.action.work {
        Work::Forward => "f",
        Work::Backward => "b",
    };
    // A little air between neighbours, as long as something is left.
    let width = (end - x - 1.0).max((end - x) * 0.7);
    let action = span.action;
    line(
        svg,
        &format!(
            "<rect class=\"{class}{}\" x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{ROW}\"><title>{action}: {} to {}</title></rect>",
            action.chunk,
            round(x),
            round(width),
            round(span.start),
            round(span.end),
        ),
    );
    let label = action.micro_batch.to_string();
    if width >= label.len() as f64 * DIGIT + 2.0 {
        let (x, y) = (round(x + width / 2.0), y + ROW / 2.0 + 4.0);
        line(
            svg,
            &format!("<text class=\"in\" x=\"{x}\" y=\"{y}\">{label}</text>"),
        );
    }
}

fn axis(svg: &mut String, timeline: &Timeline) {
    let y = TOP + timeline.stages.len() as f64 * (ROW + GAP) + 2.0;
    let step = tick(timeline.total);
    let mut time = 0.0;
    while time <= timeline.total * (1.0 + 1e-9) && step > 0.0 {
        let x = round(place(timeline, time));
        line(
            svg,
            &format!(
                "<line class=\"line\" x1=\"{x}\" y1=\"{y}\" x2=\"{x}\" y2=\"{}\"/>",
                y + 6.0
            ),
        );
        line(
            svg,
            &format!(
                "<text class=\"tick\" x=\"{x}\" y=\"{}\">{}</text>",
                y + 20.0,
                round(time)
            ),
        );
        time += step;
    }
}

/// The distance of ticks: 1, 2 or 5 of some power of ten, for about ten of them.
fn tick(total: f64) -> f64 {
    if total <= 0.0 {
        return 0.0;
    }
    let power = 10_f64.powf((total / 10.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps
        .into_iter()
        .find(|step| total / step <= 12.0)
        .unwrap_or(total)
}

fn place(timeline: &Timeline, time: f64) -> f64 {
    let share = if timeline.total > 0.0 {
        time / timeline.total
    } else {
        0.0
    };
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

/// To two digits after the point: finer than any screen, and short to write.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Costs, Schedule, simulate};

    fn timeline(schedule: &Schedule, costs: f64) -> Timeline {
        simulate(
            schedule,
            &Costs::equal(schedule.parts(), costs, 2.0 * costs, 0.0),
        )
        .unwrap()
    }

    #[test]
    fn every_action_is_drawn_once_in_its_place() {
        let timeline = timeline(&Schedule::interleaved(2, 2, 3).unwrap(), 1.0);
        let svg = svg(&timeline, "a < b & c").unwrap();
        assert!(svg.contains("a &lt; b &amp; c"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        for (class, works) in [("f", 3), ("b", 3)] {
            for chunk in 0..2 {
                let boxes = svg
                    .matches(&format!("<rect class=\"{class}{chunk}\""))
                    .count();
                // Two stages, and the legend.
                assert_eq!(boxes, 2 * works + 1, "{class}{chunk}");
            }
        }
        assert!(svg.contains("<title>backward 2, chunk 1: "));
    }

    #[test]
    fn a_timeline_without_time_is_drawn_and_one_too_large_is_not() {
        let nothing = timeline(&Schedule::gpipe(2, 2).unwrap(), 0.0);
        assert!(!svg(&nothing, "").unwrap().contains("NaN"));
        let large = timeline(&Schedule::gpipe(2, 30_000).unwrap(), 1.0);
        let refused = svg(&large, "").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a chart of 120000 actions is more than the limit of 100000"
        );
    }

    #[test]
    fn ticks_are_round_and_about_ten() {
        for total in [0.03, 1.0, 11.0, 33.0, 66.0, 1e6] {
            let ticks = total / tick(total);
            assert!((5.0..=12.0).contains(&ticks), "{ticks} ticks of {total}");
        }
    }
}
