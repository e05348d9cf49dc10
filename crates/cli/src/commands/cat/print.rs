//! Values in brackets, as NumPy prints them, and as JSON.

#![expect(
    clippy::single_range_in_vec_init,
    reason = "lists of ranges are meant, some of one range"
)]

use super::read::Elements;
use cairn::tensor::format_element;
use serde_json::Value;
use std::ops::Range;

/// How many entries an abbreviated dim shows at each end.
const EDGE: usize = 3;
/// Longer rows are broken.
const LINE_CHARS: usize = 80;

/// Which places of each dim are shown.
#[derive(Debug)]
pub(super) struct Shown {
    shape: Vec<usize>,
    abbreviated: bool,
}

impl Shown {
    pub(super) fn all(shape: &[usize]) -> Self {
        let shape = shape.to_vec();
        let abbreviated = false;
        Self { shape, abbreviated }
    }

    /// Only the ends of long dims.
    pub(super) fn ends(shape: &[usize]) -> Self {
        let shape = shape.to_vec();
        let abbreviated = true;
        Self { shape, abbreviated }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// The stretches of `dim` that are shown, with something left out between any two.
    pub(super) fn places(&self, dim: usize) -> Vec<Range<usize>> {
        let len = self.shape[dim];
        match self.abbreviated && len > 2 * EDGE {
            true => vec![0..EDGE, len - EDGE..len],
            false => vec![0..len],
        }
    }
}

/// All that is shown, in brackets.
pub(super) fn text(elements: &Elements, shown: &Shown) -> String {
    if shown.is_empty() {
        return "[]".to_string();
    }
    let mut walk = Walk {
        elements,
        shown,
        index: Vec::new(),
        width: 0,
    };
    let mut place = vec![0; shown.shape.len()];
    walk.measure(&mut place, 0);
    walk.text(&mut place, 0)
}

/// A walk over all that is shown.
struct Walk<'a> {
    elements: &'a Elements<'a>,
    shown: &'a Shown,
    index: Vec<usize>,
    /// The longest value, which all are aligned to.
    width: usize,
}

impl Walk<'_> {
    fn value(&mut self, place: &[usize]) -> String {
        let (bytes, element) = self.elements.at(place, &mut self.index);
        format_element(self.elements.dtype, bytes, element).unwrap_or_default()
    }

    fn measure(&mut self, place: &mut [usize], dim: usize) {
        if dim == place.len() {
            self.width = self.width.max(self.value(place).len());
            return;
        }
        for nth in self.shown.places(dim).into_iter().flatten() {
            place[dim] = nth;
            self.measure(place, dim + 1);
        }
    }

    /// The values from `dim` on.
    fn text(&mut self, place: &mut [usize], dim: usize) -> String {
        if dim == place.len() {
            return format!("{:>1$}", self.value(place), self.width);
        }
        let inner = place.len() - dim - 1;
        let mut entries: Vec<String> = Vec::new();
        for (index, places) in self.shown.places(dim).into_iter().enumerate() {
            if index > 0 {
                entries.push("…".to_string());
            }
            for nth in places {
                place[dim] = nth;
                entries.push(self.text(place, dim + 1));
            }
        }
        let indent = " ".repeat(dim + 1);
        match inner {
            0 => format!("[{}]", fill(&entries, &indent)),
            _ => {
                let separator = format!(",{}{indent}", "\n".repeat(inner));
                format!("[{}]", entries.join(&separator))
            }
        }
    }
}

/// A row of values, broken where a line is full.
fn fill(entries: &[String], indent: &str) -> String {
    let mut text = String::new();
    let mut used = indent.len();
    for (index, entry) in entries.iter().enumerate() {
        let last = index + 1 == entries.len();
        let width = entry.chars().count() + 1;
        if index > 0 && used + 1 + width > LINE_CHARS {
            text.push('\n');
            text.push_str(indent);
            used = indent.len();
        } else if index > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(entry);
        text.push_str(if last { "" } else { "," });
        used += width;
    }
    text
}

/// All values, as nested arrays.
pub(super) fn json(elements: &Elements, shape: &[usize]) -> Value {
    let (mut place, mut index) = (vec![0; shape.len()], Vec::new());
    nested(elements, shape, &mut place, 0, &mut index)
}

fn nested(
    elements: &Elements,
    shape: &[usize],
    place: &mut [usize],
    dim: usize,
    index: &mut Vec<usize>,
) -> Value {
    if dim == shape.len() {
        let (bytes, element) = elements.at(place, index);
        return number(&format_element(elements.dtype, bytes, element).unwrap_or_default());
    }
    let entries = (0..shape[dim]).map(|nth| {
        place[dim] = nth;
        nested(elements, shape, place, dim + 1, index)
    });
    Value::Array(entries.collect())
}

/// A number where JSON has one; infinities, NaN and complex values are text.
fn number(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_are_broken_before_they_reach_the_edge() {
        let entries: Vec<String> = (0..40).map(|n| format!("{n:>4}")).collect();
        let text = fill(&entries, " ");
        assert!(text.lines().all(|line| line.chars().count() < LINE_CHARS));
        assert_eq!(text.lines().count(), 4);
        let joined: String = text.split_whitespace().collect();
        assert_eq!(
            joined,
            (0..40).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
        );
    }

    #[test]
    fn only_long_dims_are_abbreviated() {
        let shown = Shown::ends(&[6, 7, 0]);
        assert_eq!(shown.places(0), [0..6]);
        assert_eq!(shown.places(1), [0..3, 4..7]);
        assert!(shown.is_empty());
    }
}
