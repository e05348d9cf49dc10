//! A tensor of one or two dims drawn as boxes, with the ranks that hold each.
//!
//! ```text
//!       0            2048         4096
//!     0 ┌────────────┬────────────┐
//!       │ 0,4        │ 1,5        │
//!  2048 ├────────────┼────────────┤
//!       │ 2,6        │ 3,7        │
//!  4096 └────────────┴────────────┘
//! ```

use crate::table::{Paint, Style};
use crate::units::ranks;
use std::collections::{BTreeSet, HashMap};

/// The most rows and columns drawn; the middle of more is left out.
const MAX_ROWS: usize = 8;
const MAX_COLUMNS: usize = 6;
/// The longest list of ranks in a box.
const MAX_LABEL: usize = 14;
/// The least characters inside a box.
const MIN_WIDTH: usize = 12;
/// The characters of a column that stands for many.
const LEFT_OUT: &str = " ⋯ ";

/// A box of the tensor: its offset, its extent, and the ranks that hold it.
pub(super) type Held<'a> = (&'a [usize], &'a [usize], &'a [usize]);

/// Boxes that tile a tensor in rows and columns.
#[derive(Debug)]
pub(super) struct Grid {
    rows: Cuts,
    columns: Cuts,
    /// What stands in the box at each row and column.
    labels: HashMap<(usize, usize), String>,
    has_rows: bool,
}

/// Where one dim is cut.
#[derive(Debug)]
struct Cuts {
    starts: Vec<usize>,
    end: usize,
}

impl Grid {
    /// Arranges boxes; `None` if the tensor has another number of dims, or they do not tile it.
    pub(super) fn new(shape: &[usize], boxes: &[Held]) -> Option<Self> {
        let last = shape.len().checked_sub(1)?;
        if last > 1 || boxes.is_empty() {
            return None;
        }
        // A tensor of one dim is drawn as one row.
        let row = |held: &Held| {
            if last == 1 {
                (held.0[0], held.1[0])
            } else {
                (0, 1)
            }
        };
        let column = |held: &Held| (held.0[last], held.1[last]);
        let height = if last == 1 { shape[0] } else { 1 };
        let rows = Cuts::new(boxes.iter().map(row), height);
        let columns = Cuts::new(boxes.iter().map(column), shape[last]);
        let mut labels = HashMap::new();
        for held in boxes {
            let place = (rows.place(row(held))?, columns.place(column(held))?);
            labels.insert(place, ranks(held.2, MAX_LABEL));
        }
        let tiled = labels.len() == rows.starts.len() * columns.starts.len();
        (tiled && labels.len() == boxes.len()).then_some(Self {
            rows,
            columns,
            labels,
            has_rows: last == 1,
        })
    }

    /// The drawing as lines, each ended.
    pub(super) fn draw(&self, paint: Paint) -> String {
        let rows = shown(self.rows.starts.len(), MAX_ROWS);
        let columns = shown(self.columns.starts.len(), MAX_COLUMNS);
        let widths: Vec<usize> = columns.iter().map(|column| self.width(*column)).collect();
        let digits = self.rows.end.to_string().len();
        let margin = |at: Option<usize>| match at {
            _ if !self.has_rows => String::new(),
            Some(at) => paint.text(Style::Dim, &format!("{at:>digits$} ")),
            None => " ".repeat(digits + 1),
        };
        let mut text = margin(None) + &paint.text(Style::Dim, &self.ruler(&columns, &widths));
        for (index, row) in rows.iter().enumerate() {
            let corners = if index == 0 {
                ['┌', '┬', '┐']
            } else {
                ['├', '┼', '┤']
            };
            text.push_str(&margin(row.map(|row| self.rows.starts[row])));
            text.push_str(&border(corners, &widths));
            text.push_str(&margin(None));
            for (column, width) in columns.iter().zip(&widths) {
                let label = self.label(*row, *column);
                let gap = " ".repeat(width.saturating_sub(label.chars().count()));
                text.push_str(&format!("│{}{gap}", paint.text(Style::Cyan, &label)));
            }
            text.push_str("│\n");
        }
        text.push_str(&margin(Some(self.rows.end)));
        text.push_str(&border(['└', '┴', '┘'], &widths));
        text
    }

    fn label(&self, row: Option<usize>, column: Option<usize>) -> String {
        match (row, column) {
            (Some(row), Some(column)) => format!(" {} ", self.labels[&(row, column)]),
            (None, Some(_)) => " ⋮ ".to_string(),
            (_, None) => LEFT_OUT.to_string(),
        }
    }

    fn width(&self, column: Option<usize>) -> usize {
        let Some(column) = column else {
            return LEFT_OUT.chars().count();
        };
        let rows = 0..self.rows.starts.len();
        let labels = rows.map(|row| self.labels[&(row, column)].chars().count() + 2);
        labels.max().unwrap_or(0).max(MIN_WIDTH)
    }

    /// Where each column starts, above its left border.
    fn ruler(&self, columns: &[Option<usize>], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, width) in columns.iter().zip(widths) {
            let start = column.map_or(String::new(), |at| self.columns.starts[at].to_string());
            line.push_str(&format!("{start:<width$} ", width = width));
        }
        format!("{line}{}\n", self.columns.end)
    }
}

impl Cuts {
    fn new(ranges: impl Iterator<Item = (usize, usize)>, end: usize) -> Self {
        let starts: BTreeSet<usize> = ranges.map(|(start, _)| start).collect();
        let starts = starts.into_iter().collect();
        Self { starts, end }
    }

    /// Which of the parts between the cuts a range is; `None` if it reaches over a cut.
    fn place(&self, (start, len): (usize, usize)) -> Option<usize> {
        let place = self.starts.binary_search(&start).ok()?;
        let end = self.starts.get(place + 1).copied().unwrap_or(self.end);
        (start + len == end).then_some(place)
    }
}

/// The places that are drawn; `None` stands for those left out.
fn shown(count: usize, most: usize) -> Vec<Option<usize>> {
    if count <= most {
        return (0..count).map(Some).collect();
    }
    let front = (0..most - 2).map(Some);
    front.chain([None, Some(count - 1)]).collect()
}

fn border([left, middle, right]: [char; 3], widths: &[usize]) -> String {
    let bars: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    format!("{left}{}{right}\n", bars.join(&middle.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_that_do_not_tile_are_not_drawn() {
        let whole: Held = (&[0, 0], &[4, 4], &[0]);
        assert!(Grid::new(&[4, 4], &[whole]).is_some());
        assert!(Grid::new(&[4, 4], &[whole, whole]).is_none());
        let half: Held = (&[0, 0], &[2, 4], &[0]);
        assert!(Grid::new(&[4, 4], &[half]).is_none());
        let corner: Held = (&[2, 2], &[2, 2], &[1]);
        assert!(Grid::new(&[4, 4], &[half, corner]).is_none());
        assert!(Grid::new(&[], &[(&[], &[], &[0])]).is_none());
        assert!(Grid::new(&[4], &[]).is_none());
    }

    #[test]
    fn many_parts_are_abbreviated() {
        assert_eq!(shown(3, 3), [Some(0), Some(1), Some(2)]);
        assert_eq!(shown(9, 4), [Some(0), Some(1), None, Some(8)]);
    }
}
