//! What differs, on a screen.

use super::Report;
use super::structure::{Lonely, Renamed};
use crate::numbers::{percent, short, short_or_blank};
use crate::table::{Paint, Style, Table, cell};
use serde_json::Value;

/// The most lines of each list, unless all are asked for.
const MAX_LINES: usize = 20;
/// The longest plain value printed.
const MAX_VALUE_CHARS: usize = 40;

impl Report {
    pub(super) fn text(&self, all: bool, paint: Paint) -> String {
        let most = if all { usize::MAX } else { MAX_LINES };
        let parts = [
            self.headline(paint),
            self.structure(most, paint),
            self.numbers(most, paint),
        ];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("\n")
    }

    fn headline(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        facts.fact("left", self.left.as_str());
        facts.fact("right", self.right.as_str());
        let same = self.compared - self.differing.len();
        let mut tensors = vec![format!("{same} the same")];
        let counts = [
            (self.differing.len(), "differ"),
            (self.changed.len(), "of another shape or type"),
            (self.only_left.len(), "only left"),
            (self.only_right.len(), "only right"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        tensors.extend(counts.map(|(count, what)| format!("{count} {what}")));
        let style = if self.same {
            Style::Green
        } else {
            Style::Yellow
        };
        facts.fact("tensors", cell(style, tensors.join(", ")));
        if !self.values.is_empty() {
            let values = format!("{} differ", self.values.len());
            facts.fact("values", cell(Style::Yellow, values));
        }
        facts.render(paint)
    }

    fn structure(&self, most: usize, paint: Paint) -> String {
        let mut table = Table::new(&["", "", ""]);
        let lonely = |tensor: &Lonely| {
            let text = format!("{}{:?}", tensor.dtype, tensor.shape);
            (tensor.name.clone(), text)
        };
        let renamed = |renamed: &Renamed| {
            let times = match renamed.count {
                1 => String::new(),
                count => format!(" ({count})"),
            };
            (renamed.left.clone(), format!("→ {}{times}", renamed.right))
        };
        let arrow = |left: &str, right: &str| format!("{left} → {right}");
        add(
            &mut table,
            "only left",
            Style::Red,
            most,
            self.only_left.iter().map(lonely),
        );
        add(
            &mut table,
            "only right",
            Style::Green,
            most,
            self.only_right.iter().map(lonely),
        );
        add(
            &mut table,
            "renamed?",
            Style::Cyan,
            most,
            self.renamed.iter().map(renamed),
        );
        let changed = self.changed.iter();
        let changed =
            changed.map(|tensor| (tensor.name.clone(), arrow(&tensor.left, &tensor.right)));
        add(&mut table, "changed", Style::Yellow, most, changed);
        let values = self.values.iter();
        let values = values.map(|value| {
            (
                value.name.clone(),
                arrow(&cut(&value.left), &cut(&value.right)),
            )
        });
        add(&mut table, "value", Style::Yellow, most, values);
        table.render(paint)
    }

    fn numbers(&self, most: usize, paint: Paint) -> String {
        if self.differing.is_empty() {
            return String::new();
        }
        let header = [
            "TENSOR",
            " DIFFERING",
            " MAX ABS",
            " MAX REL",
            " COSINE",
            " NAN",
            "WORST AT",
        ];
        let mut table = Table::new(&header);
        for tensor in self.differing.iter().take(most) {
            let share = percent(tensor.differing_elements as f64 / tensor.elements as f64);
            let nan = match tensor.nan_mismatches {
                0 => String::new(),
                count => count.to_string(),
            };
            let worst = tensor.worst.as_ref();
            table.row(vec![
                tensor.name.as_str().into(),
                format!("{} ({share})", tensor.differing_elements).into(),
                short(tensor.max_absolute).into(),
                short(tensor.max_relative).into(),
                cosine(tensor.cosine).into(),
                cell(Style::Red, nan),
                cell(
                    Style::Dim,
                    worst.map_or(String::new(), |at| format!("{at:?}")),
                ),
            ]);
        }
        let left_out = self.differing.len().saturating_sub(most);
        table.render(paint) + &more(left_out)
    }
}

/// Adds lines of a list: what they are, names and facts.
fn add(
    table: &mut Table,
    what: &str,
    style: Style,
    most: usize,
    lines: impl ExactSizeIterator<Item = (String, String)>,
) {
    let left_out = lines.len().saturating_sub(most);
    for (name, fact) in lines.take(most) {
        table.row(vec![cell(style, what), name.into(), fact.into()]);
    }
    if left_out > 0 {
        let text = more(left_out).trim_end().to_string();
        table.row(vec!["".into(), text.into(), "".into()]);
    }
}

fn more(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!("… and {count} more (`--all`)\n"),
    }
}

/// A cosine near one says how near.
fn cosine(cosine: Option<f64>) -> String {
    match cosine {
        Some(cosine) if cosine < 1.0 && cosine > 0.999 => format!("1-{:.0e}", 1.0 - cosine),
        cosine => short_or_blank(cosine),
    }
}

fn cut(value: &Value) -> String {
    let text = value.to_string();
    let cut: String = text.chars().take(MAX_VALUE_CHARS).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut}{more}")
}
